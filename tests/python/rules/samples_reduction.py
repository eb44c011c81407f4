"""Sample arguments of reductions."""

import torch

from .sample import FLOATS, sample

INTS = [torch.int64, torch.int32, torch.uint8, torch.bool]
DIMS = [[0], [-1], [0, 2], [1, -1], [0, 1, 2], []]


def values(*shape, dtype=torch.float32):
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    if not dtype.is_floating_point:
        return torch.randint(0, 9, shape).to(dtype)
    return (torch.randn(shape) * 2 + 0.5).to(dtype)


def tensors(dtype):
    yield values(2, 3, 4, dtype=dtype)
    yield values(4, 3, 2, dtype=dtype).transpose(0, 2)


def sums():
    for dtype in (*FLOATS, *INTS):
        for x in tensors(dtype):
            yield sample("sum.default", x)
            yield sample("sum.default", x, dtype=torch.float32)
            yield sample("prod.default", x)
            yield sample("count_nonzero.default", x)
            for dims in DIMS:
                for keep in (False, True):
                    yield sample("sum.dim_IntList", x, dims, keep)
                    if dtype.is_floating_point:
                        yield sample("mean.dim", x, dims, keep)
            yield sample("sum.dim_IntList", x, [1], dtype=torch.float64)
            yield sample("sum.dim_IntList", x, None, True)
            yield sample("count_nonzero.dim_IntList", x, [0, -1])
            yield sample("count_nonzero.default", x, 1)
            for keep in (False, True):
                yield sample("prod.dim_int", x, -1, keep)
        scalar, empty = values(dtype=dtype), values(0, 3, dtype=dtype)
        for x in (scalar, empty):
            yield sample("sum.default", x)
            yield sample("sum.dim_IntList", x, [0])
            yield sample("sum.dim_IntList", x, [-1], True)
            yield sample("prod.default", x)
            yield sample("prod.dim_int", x, 0)
            yield sample("count_nonzero.default", x)
            if dtype.is_floating_point:
                yield sample("mean.default", x)
                yield sample("mean.dim", x, [-1], True)
    for dtype in INTS:
        yield sample("mean.default", values(3, dtype=dtype), dtype=torch.float32)
    yield sample("mean.dim", values(3, 4, dtype=torch.bfloat16), [0], dtype=torch.float32)
    yield sample("nansum.default", torch.tensor([1.0, float("nan"), 2.0]))
    yield sample("nansum.default", torch.tensor([[1.0, float("nan")], [3.0, 2.0]]), [1], True)
    yield sample("nansum.default", values(3, dtype=torch.int32))
    yield sample("sum_to_size.default", values(2, 3, 4), [3, 1])
    yield sample("sum_to_size.default", values(2, 3), [2, 3])
    yield sample("sum_to_size.default", values(2, 3), [])


def extremes():
    nan = torch.tensor([[1.0, float("nan"), 3.0], [4.0, 4.0, -1.0]])
    equal = torch.tensor([[2, 5, 5], [1, 1, 0]])
    for dtype in (*FLOATS, *INTS):
        xs = [*tensors(dtype), equal.to(dtype)]
        for x in xs:
            rank3 = x.dim() == 3
            for op in ("amax", "amin"):
                for dims in DIMS if rank3 else [[0], [-1]]:
                    for keep in (False, True):
                        yield sample(f"{op}.default", x, dims, keep)
            for op in ("max", "min"):
                yield sample(f"{op}.default", x)
                for keep in (False, True):
                    yield sample(f"{op}.dim", x, -1, keep)
                    yield sample(f"{op}.dim", x, 0, keep)
            if dtype != torch.bool:
                for op in ("argmax", "argmin"):
                    yield sample(f"{op}.default", x)
                    yield sample(f"{op}.default", x, None, True)
                    yield sample(f"{op}.default", x, 1)
                    yield sample(f"{op}.default", x, 0, True)
            yield sample("aminmax.default", x)
            yield sample("aminmax.default", x, dim=-1, keepdim=True)
            for op in ("any", "all"):
                yield sample(f"{op}.default", x)
                yield sample(f"{op}.dim", x, -1)
                yield sample(f"{op}.dim", x, 0, True)
                yield sample(f"{op}.dims", x, [0, 1])
                yield sample(f"{op}.dims", x, None, True)
                yield sample(f"{op}.dims", x, [])
        scalar = values(dtype=dtype)
        for op in ("amax", "amin"):
            yield sample(f"{op}.default", scalar)
            yield sample(f"{op}.default", scalar, [0], True)
        for op in ("max", "min"):
            yield sample(f"{op}.default", scalar)
            yield sample(f"{op}.dim", scalar, 0)
            yield sample(f"{op}.dim", scalar, -1, True)
        for op in ("any", "all"):
            yield sample(f"{op}.default", scalar)
            yield sample(f"{op}.default", values(0, 3, dtype=dtype))
            yield sample(f"{op}.dim", values(0, 3, dtype=dtype), 0)
        if dtype != torch.bool:
            yield sample("argmax.default", scalar)
            yield sample("argmax.default", scalar, 0)
    for op in ("amax", "amin"):
        yield sample(f"{op}.default", nan, [1])
        yield sample(f"{op}.default", nan, [0])
    for op in ("max", "min"):
        yield sample(f"{op}.default", nan)
        yield sample(f"{op}.dim", nan, 1)
        yield sample(f"{op}.dim", nan, 0)
    yield sample("argmax.default", nan)
    yield sample("argmin.default", nan, 1)
    yield sample("amax.default", values(0, 3), [1])
    yield sample("any.default", nan)


def moments():
    for dtype in FLOATS:
        for x in tensors(dtype):
            for op in ("var", "std", "var_mean", "std_mean"):
                for correction in (None, 0, 1, 2.5, 30):
                    yield sample(f"{op}.correction", x, [1], correction=correction)
                    yield sample(f"{op}.correction", x, [0, -1], correction=correction, keepdim=True)
                    yield sample(f"{op}.correction", x, None, correction=correction)
                yield sample(f"{op}.correction", x, [], correction=0)
                for unbiased in (True, False):
                    yield sample(f"{op}.default", x, unbiased)
                    yield sample(f"{op}.dim", x, [1], unbiased, True)
        for op in ("var", "std", "var_mean", "std_mean"):
            yield sample(f"{op}.correction", values(1, dtype=dtype), [0], correction=1)
            yield sample(f"{op}.correction", values(dtype=dtype), None, correction=0)
            yield sample(f"{op}.correction", values(0, 3, dtype=dtype), [0], correction=1)


def norms():
    for dtype in FLOATS:
        for x in tensors(dtype):
            for p in (2, 1, 0, float("inf"), float("-inf"), 3, 0.5, 2.5, -2):
                yield sample("linalg_vector_norm.default", x, p)
                yield sample("linalg_vector_norm.default", x, p, [1], True)
                yield sample("linalg_vector_norm.default", x, p, [0, -1])
                yield sample("norm.ScalarOpt_dim", x, p, [1], True)
                yield sample("norm.Scalar", x, p)
            yield sample("linalg_vector_norm.default", x)
            yield sample("linalg_vector_norm.default", x, 2, None, True)
            yield sample("linalg_vector_norm.default", x, 2, [0], dtype=torch.float64)
            yield sample("norm.ScalarOpt_dim", x, None, [0])
            yield sample("norm.ScalarOpt_dtype", x, 2, dtype=torch.float64)
            yield sample("norm.ScalarOpt_dim_dtype", x, 2, [0], False, dtype=torch.float64)
        for p in (2, 1, 0, 3):
            yield sample("linalg_vector_norm.default", values(dtype=dtype), p)
            yield sample("linalg_vector_norm.default", values(4, 1, dtype=dtype) * 2.0**63, p, [1])
            yield sample("linalg_vector_norm.default", values(0, 3, dtype=dtype), p)
            yield sample("linalg_vector_norm.default", values(0, 3, dtype=dtype), p, [0])


def selected():
    for dtype in FLOATS:
        x = values(2, 3, 4, dtype=dtype)
        for dim in (0, 1, -1):
            for keep in (False, True):
                v, i = x.max(dim, keep)
                yield sample("value_selecting_reduction_backward.default", torch.randn_like(v), dim, i, [2, 3, 4], keep)
    yield sample("value_selecting_reduction_backward.default", values(), 0, torch.tensor(0), [], False)


def samples():
    yield from sums()
    yield from extremes()
    yield from moments()
    yield from norms()
    yield from selected()
