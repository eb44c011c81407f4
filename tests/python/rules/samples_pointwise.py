"""Sample arguments of the pointwise, comparison and conversion operators."""

import torch

from .sample import FLOATS, INTS, each_dtype, sample

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, 6.0, 0.1, -0.3, 1e-3, 19.0, 21.0, -40.0]
SPECIAL = [float("inf"), float("-inf"), float("nan")]


def vector(dtype=torch.float64, special=True):
    return torch.tensor(EDGES + (SPECIAL if special else []), dtype=torch.float64).to(dtype)


def operands(dtype):
    """Pairs of tensors that broadcast, hold edge values, are 0-d or empty."""
    torch.manual_seed(0)
    v = vector(dtype)
    yield v, v.flip(0)
    yield v[:, None], v[None, :]
    yield torch.randn(2, 3, 4).to(dtype), torch.randn(3, 1).to(dtype)
    yield torch.randn(()).to(dtype), torch.randn(4).to(dtype)
    yield torch.randn(()).to(dtype), torch.randn(()).to(dtype)
    yield torch.randn(0, 3).to(dtype), torch.randn(3).to(dtype)


def integers(dtype):
    torch.manual_seed(0)
    low = 0 if dtype == torch.uint8 else -7
    yield torch.randint(low, 8, (4, 5), dtype=dtype), torch.randint(1, 6, (5,), dtype=dtype)
    if dtype != torch.uint8:
        yield torch.randint(-7, 8, (6,), dtype=dtype), torch.tensor([-3, -1, 1, 2, 3, -2], dtype=dtype)


ANY_UNARY = ["abs", "neg", "sign", "sgn", "positive", "square"]
ROUNDING = ["floor", "ceil", "round", "trunc"]
FLOAT_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh erf erfc erfinv lgamma digamma sigmoid deg2rad rad2deg sinc angle special_entr special_ndtr special_expit"
    " logit"
).split()
TESTS = ["isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "signbit", "logical_not"]


def unary():
    for name in ANY_UNARY + ROUNDING + FLOAT_UNARY + TESTS + ["frac"]:
        for dtype in FLOATS:
            yield sample(f"{name}.default", vector(dtype))
            yield sample(f"{name}.default", torch.tensor(0.25, dtype=dtype))
            yield sample(f"{name}.default", torch.empty(0, 2, dtype=dtype))
        if name in ("frac", "special_entr"):
            continue
        for dtype in INTS:
            if name == "neg" and dtype == torch.uint8:
                continue
            yield sample(f"{name}.default", torch.arange(0 if dtype == torch.uint8 else -3, 5, dtype=dtype))
    for name in ["sign", "sgn", "logical_not", "bitwise_not", "exp", "sigmoid", "isnan", "isfinite"]:
        yield sample(f"{name}.default", torch.tensor([True, False]))
    for dtype in INTS:
        yield sample("bitwise_not.default", torch.arange(0, 5, dtype=dtype))
    for dtype in FLOATS:
        for decimals in (0, 2, -1):
            yield sample("round.decimals", torch.randn(7).mul(30).to(dtype), decimals=decimals)
        yield sample("polygamma.default", 0, torch.rand(5).to(dtype))
        yield sample("nan_to_num.default", vector(dtype))
        yield sample("nan_to_num.default", vector(dtype), 1.0, 2.0, -3.0)
        yield sample("logit.default", torch.rand(9).to(dtype), 0.2)
        # Eager's own sign of the infinity at -0 depends on its vector path.
        x = torch.cat([vector(dtype)[2:], torch.rand(5).to(dtype)])
        yield sample("logit_backward.default", torch.randn(x.shape).to(dtype), x)
        yield sample("logit_backward.default", torch.randn(x.shape).to(dtype), x, 0.2)
    yield sample("nan_to_num.default", torch.arange(3))


BINARY = {
    "add.Tensor": "any",
    "sub.Tensor": "any",
    "rsub.Tensor": "any",
    "mul.Tensor": "any",
    "div.Tensor": "any",
    "floor_divide.default": "any",
    "remainder.Tensor": "any",
    "fmod.Tensor": "any",
    "pow.Tensor_Tensor": "float",
    "float_power.Tensor_Tensor": "float",
    "ldexp.Tensor": "float",
    "maximum.default": "any",
    "minimum.default": "any",
    "max.other": "any",
    "min.other": "any",
    "fmax.default": "any",
    "fmin.default": "any",
    "atan2.default": "any",
    "hypot.default": "float",
    "copysign.Tensor": "any",
    "heaviside.default": "any",
    "xlogy.Tensor": "any",
    "special_xlog1py.default": "any",
    "logaddexp.default": "float",
    "logaddexp2.default": "float",
    "logical_and.default": "any",
    "logical_or.default": "any",
    "logical_xor.default": "any",
} | {f"{name}.Tensor": "any" for name in ("eq", "ne", "lt", "le", "gt", "ge")}

SAME_DTYPE = {"heaviside.default", "hypot.default", "logaddexp.default", "logaddexp2.default"}


def binary():
    for name, kind in BINARY.items():
        for dtype in FLOATS:
            for a, b in operands(dtype):
                yield sample(name, a, b)
        if kind == "any":
            for dtype in INTS:
                for a, b in integers(dtype):
                    yield sample(name, a, b)
        if name not in SAME_DTYPE:
            torch.manual_seed(1)
            f32, bf16, f64, i64 = torch.rand(4), torch.rand(4).bfloat16(), torch.rand(4).double(), torch.arange(1, 5)
            zero32, zero64 = torch.tensor(1.3), torch.tensor(0.7, dtype=torch.float64)
            for pair in [
                (f32, bf16),
                (bf16, f64),
                (i64, f32),
                (bf16, i64),
                (bf16, zero32),
                (zero64, f32),
                (zero32, i64),
            ]:
                yield sample(name, *pair)
    for name in ("add.Tensor", "sub.Tensor", "rsub.Tensor", "add.Scalar", "sub.Scalar", "rsub.Scalar"):
        for dtype in FLOATS:
            a, b = torch.randn(3, 2).to(dtype), torch.randn(2).to(dtype)
            yield sample(name, a, b if "Tensor" in name else 0.7, alpha=0.3)
            yield sample(name, a, b if "Tensor" in name else 2, alpha=2)
        yield sample(name, torch.arange(4), torch.arange(4) if "Tensor" in name else 3, alpha=-3)
    for name in (
        "add.Tensor",
        "mul.Tensor",
        "maximum.default",
        "bitwise_xor.Tensor",
        "logical_xor.default",
        "eq.Tensor",
    ):
        yield sample(name, torch.tensor([True, False, True]), torch.tensor([True, False, False]))
    yield sample("add.Tensor", torch.tensor([True, False]), torch.arange(2))


SCALAR = (
    "add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar floor_divide.Scalar remainder.Scalar fmod.Scalar".split()
)
COMPARE = [f"{name}.Scalar" for name in ("eq", "ne", "lt", "le", "gt", "ge")]


def scalars():
    for name in SCALAR + COMPARE + ["copysign.Scalar", "xlogy.Scalar_Other", "special_xlog1py.other_scalar"]:
        for dtype in FLOATS:
            for number in (2, 0.1, -1.5):
                yield sample(name, vector(dtype, special=number != 2), number)
        for dtype in INTS:
            yield sample(name, torch.arange(1, 6, dtype=dtype), 3)
            yield sample(name, torch.arange(1, 6, dtype=dtype), 2.5)
    for name in ("add.Tensor", "mul.Tensor", "sub.Tensor", "div.Tensor"):
        for number in (2, 0.1, True):
            if name == "sub.Tensor" and number is True:
                continue
            yield sample(name, vector(torch.bfloat16), number)
            yield sample(name, torch.arange(4), number)
            yield sample(name, torch.tensor(3.5), number)
    for name in (
        "xlogy.Scalar_Self",
        "special_xlog1py.self_scalar",
        "remainder.Scalar_Tensor",
        "float_power.Scalar",
        "pow.Scalar",
    ):
        for dtype in FLOATS:
            yield sample(name, 2.5, vector(dtype))
            yield sample(name, 1, vector(dtype))
    for exponent in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.0, 3.0, 1.7, 4, -3, 0.0):
        for dtype in FLOATS:
            yield sample("pow.Tensor_Scalar", vector(dtype), exponent)
            yield sample("float_power.Tensor_Scalar", vector(dtype), exponent)
        if exponent >= 0:
            yield sample("pow.Tensor_Scalar", torch.arange(-3, 4), exponent)
    for mode in (None, "floor", "trunc"):
        for dtype in FLOATS:
            # A truncated quotient near an integer depends on the precision it was computed in.
            near = mode == "trunc" and dtype != torch.float64
            for a, b in [(torch.randn(9).to(dtype) * 10, torch.randn(9).to(dtype))] if near else operands(dtype):
                yield sample("div.Tensor_mode", a, b, rounding_mode=mode)
            yield sample("div.Scalar_mode", vector(dtype), 0.7, rounding_mode=mode)
            if not near:
                yield sample("div.Scalar_mode", vector(dtype), 0.1, rounding_mode=mode)
        for dtype in INTS:
            for a, b in integers(dtype):
                yield sample("div.Tensor_mode", a, b, rounding_mode=mode)
            yield sample("div.Scalar_mode", torch.arange(1, 6, dtype=dtype), 2, rounding_mode=mode)


def bits():
    for dtype in INTS:
        a, b = torch.arange(0, 12, dtype=dtype), torch.arange(12, 0, -1, dtype=dtype)
        for name in ("and", "or", "xor"):
            yield sample(f"bitwise_{name}.Tensor", a, b)
            yield sample(f"bitwise_{name}.Scalar", a, 5)
            yield sample(f"bitwise_{name}.Scalar_Tensor", 5, b)
            yield sample(f"__{name}__.Tensor", a, b)
            yield sample(f"__{name}__.Scalar", a, 3)
        shifts = torch.tensor([0, 1, 2, 7, 8, 9, 31, 33, 63, 64, 65, 3], dtype=dtype)
        for name in ("left_shift", "right_shift"):
            for value in (a, b) if dtype == torch.uint8 else (a, b, -b):
                yield sample(f"bitwise_{name}.Tensor", value, shifts)
                yield sample(f"bitwise_{name}.Tensor_Scalar", value, 3)
                yield sample(f"bitwise_{name}.Tensor_Scalar", value, 70)
                yield sample(f"__{name[0]}shift__.Tensor", value, shifts)
                yield sample(f"__{name[0]}shift__.Scalar", value, 2)
            yield sample(f"bitwise_{name}.Scalar_Tensor", 5, shifts)
            if dtype != torch.uint8:
                yield sample(f"bitwise_{name}.Tensor", a, -shifts)


def ternary():
    nan = float("nan")
    for dtype in FLOATS:
        v, w = vector(dtype), vector(dtype).flip(0)
        for low, high in ((-1, 0.3), (None, 2), (0.1, None), (2.0, -2.0), (nan, 1.0)):
            yield sample("clamp.default", v, low, high)
        yield sample("clamp_min.default", v, 0.1)
        yield sample("clamp_max.default", v, 0.1)
        yield sample("clamp.Tensor", v, w, None)
        yield sample("clamp.Tensor", v[:, None], w, w.abs())
        yield sample("clamp.Tensor", v, None, torch.tensor(0.5))
        yield sample("clamp_min.Tensor", v, w)
        yield sample("clamp_max.Tensor", v, w)
        torch.manual_seed(2)
        x, y, z = (torch.randn(*s).to(dtype) for s in ((4, 1, 3), (5, 3), (3,)))
        for weight in (0.3, 0.8, -2, 0.5):
            yield sample("lerp.Scalar", x, y, weight)
        yield sample("lerp.Tensor", x, y, z)
        for value in ({}, {"value": 2}, {"value": -0.3}):
            yield sample("addcmul.default", x, y, z, **value)
            yield sample("addcdiv.default", x, y, z, **value)
        yield sample("threshold.default", v, 0.5, -7.0)
        mask = torch.rand(5, 3) < 0.5
        yield sample("where.self", mask, x, y)
        yield sample("where.self", mask, torch.tensor(1.5), z)
        yield sample("where.ScalarOther", mask, y, 0.1)
        yield sample("where.ScalarSelf", mask, 3, y)
        yield sample("masked_fill.Scalar", x, mask, float("-inf"))
        yield sample("masked_fill.Scalar", y, mask, 2)
        yield sample("masked_fill.Tensor", y, mask, torch.tensor(0.1))
        yield sample("fill.Scalar", y, 0.1)
        yield sample("fill.Tensor", y, torch.tensor(0.3))
    yield sample("where.Scalar", torch.tensor([True, False]), 1, 0)
    yield sample("where.Scalar", torch.tensor([True, False]), 1.5, 0)
    yield sample("where.self", torch.tensor([1, 0], dtype=torch.uint8), torch.arange(2), torch.randn(2))
    yield sample("masked_fill.Scalar", torch.arange(4), torch.arange(4) > 1, -1)
    yield sample("masked_fill.Scalar", torch.arange(4) > 2, torch.arange(4) > 1, True)
    yield sample("clamp.default", torch.arange(5), 1, 3)
    yield sample("clamp.default", torch.arange(5), 0.5, 2.5)
    yield sample("clamp_min.default", torch.arange(5), 2)
    yield sample("addcmul.default", torch.arange(3), torch.arange(3), torch.arange(3), value=3)
    yield sample("lerp.Scalar", torch.rand(3).double(), torch.rand(3).double(), 0.25)


def conversions():
    values = torch.tensor([0.0, 1.7, -2.3, 0.1, 100.5])
    for target in FLOATS + INTS + [torch.bool]:
        for source in [*FLOATS, torch.int64, torch.bool]:
            x = values.to(source)
            if target == torch.uint8:
                x = x.abs() if source != torch.bool else x
            yield sample("_to_copy.default", x, dtype=target)
        yield sample("to.dtype", values.abs(), target)
        yield sample("prims.convert_element_type.default", values.abs(), target)
        yield sample("zeros_like.default", values, dtype=target)
        yield sample("ones_like.default", values, dtype=target)
        yield sample("full_like.default", values, 1, dtype=target)
    yield sample("to.other", values, torch.arange(2))
    yield sample("_to_copy.default", values)
    for x in [*each_dtype(torch.randn(2, 3), FLOATS), torch.arange(3), torch.tensor(True)]:
        for name in "clone detach alias lift lift_fresh lift_fresh_copy contiguous conj resolve_conj real".split():
            yield sample(f"{name}.default", x)
        yield sample("zeros_like.default", x)
        yield sample("ones_like.default", x)
        yield sample("full_like.default", x, 3)
        yield sample("zero.default", x)
        yield sample("copy.default", x, torch.ones(()))
    yield sample("full_like.default", torch.arange(3), 2.9)
    yield sample("full_like.default", torch.zeros(3), float("-inf"))
    yield sample("copy.default", torch.zeros(2, 3, dtype=torch.bfloat16), torch.randn(3))
    yield sample("clone.default", torch.randn(2, 3, 4, 5), memory_format=torch.channels_last)


def samples():
    for group in (unary, binary, scalars, bits, ternary, conversions):
        yield from group()
