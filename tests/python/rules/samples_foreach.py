"""Sample arguments of operators over lists of tensors."""

import torch

from .sample import FLOATS, sample

UNARY = "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor lgamma log log10 log1p log2 neg reciprocal"
UNARY += " round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc frac zero max norm"
SHAPES = [(2, 3), (), (4,), (0, 2)]


def tensors(dtype, shapes=SHAPES):
    return [(torch.rand(s) * 0.8 + 0.1).to(dtype) for s in shapes]


def samples():
    for dtype in FLOATS:
        xs, ys, zs = tensors(dtype), tensors(dtype), tensors(dtype)
        for op in UNARY.split():
            overload = "Scalar" if op == "norm" else "default"
            yield sample(f"_foreach_{op}.{overload}", xs[:3] if op == "max" else xs)
        yield sample("_foreach_norm.Scalar", xs, 1)
        yield sample("_foreach_norm.Scalar", xs[:3], float("inf"))
        yield sample("_foreach_norm.Scalar", xs, 2, torch.float64)
        for op in "add sub mul div maximum minimum clamp_min clamp_max pow".split():
            yield sample(f"_foreach_{op}.Scalar", xs, 0.5)
            yield sample(f"_foreach_{op}.Scalar", xs, 2)
            yield sample(f"_foreach_{op}.ScalarList", xs, [0.5, 2.0, 3.0, 0.0])
            yield sample(f"_foreach_{op}.List", xs, ys)
        for op in ("add", "sub"):
            yield sample(f"_foreach_{op}.List", xs, ys, alpha=0.25)
        yield sample("_foreach_add.Tensor", xs, torch.tensor(0.5, dtype=dtype), alpha=2)
        yield sample("_foreach_mul.Tensor", xs, torch.tensor(0.5, dtype=dtype))
        yield sample("_foreach_div.Tensor", xs, torch.tensor(0.5, dtype=dtype))
        yield sample("_foreach_pow.ScalarAndTensor", 2.5, xs)
        for op in ("addcmul", "addcdiv"):
            yield sample(f"_foreach_{op}.Scalar", xs, ys, zs)
            yield sample(f"_foreach_{op}.Scalar", xs, ys, zs, 0.5)
            yield sample(f"_foreach_{op}.ScalarList", xs, ys, zs, [0.5, 2.0, 3.0, 1.0])
            yield sample(f"_foreach_{op}.Tensor", xs, ys, zs, torch.tensor([0.5, 2.0, 3.0, 1.0], dtype=dtype))
        yield sample("_foreach_lerp.Scalar", xs, ys, 0.25)
        yield sample("_foreach_lerp.Scalar", xs, ys, 0.75)
        yield sample("_foreach_lerp.List", xs, ys, zs)
        yield sample("_foreach_lerp.ScalarList", xs, ys, [0.1, 0.9, 0.5, 1.0])
        yield sample("_foreach_copy.default", xs, tensors(torch.float64))
        yield sample("_foreach_mul.Tensor", xs, torch.tensor(0.5, dtype=torch.float64))
    ints = [torch.tensor([1, 2, 3]), torch.tensor(4)]
    yield sample("_foreach_add.Scalar", ints, 1)
    yield sample("_foreach_add.Scalar", ints, 1.5)
    yield sample("_foreach_div.Scalar", ints, 2)
    yield sample("_foreach_mul.List", ints, ints)
