"""Sample arguments of the softmax family."""

import torch

from .sample import FLOATS, sample

INF = float("inf")


def inputs(dtype):
    torch.manual_seed(4)
    yield torch.randn(3, 5).to(dtype), -1
    yield torch.randn(2, 3, 4).to(dtype), 1
    yield torch.randn(2, 3).mul(100).to(dtype), 0
    yield torch.randn(()).to(dtype), 0
    yield torch.randn(0, 3).to(dtype), 1
    yield torch.randn(3, 1).to(dtype), 1
    x = torch.randn(4, 3).to(dtype)
    x[0] = -INF
    x[1, 1] = -INF
    x[2, 0] = float("nan")
    yield x, 1


def samples():
    for dtype in FLOATS:
        for x, dim in inputs(dtype):
            for name in ("_softmax", "_log_softmax"):
                yield sample(f"{name}.default", x, dim, False)
            yield sample("_safe_softmax.default", x, dim)
            yield sample("softmax.int", x, dim)
            yield sample("log_softmax.int", x, dim)
            yield sample("special_softmax.default", x, dim)
            yield sample("special_log_softmax.default", x, dim)
            for keepdim in (False, True):
                yield sample("logsumexp.default", x, [dim], keepdim)
                yield sample("special_logsumexp.default", x, [dim], keepdim)
            g = torch.randn(x.shape).to(dtype)
            y = torch.softmax(x.nan_to_num(0.1, 0.2, 0.3), dim)
            yield sample("_softmax_backward_data.default", g, y, dim, dtype)
            yield sample("_log_softmax_backward_data.default", g, y.log(), dim, dtype)
        x = torch.randn(2, 3, 4).to(dtype)
        yield sample("logsumexp.default", x, [0, 2])
        yield sample("logsumexp.default", x, [0, -1], True)
        yield sample("logsumexp.default", torch.tensor([[INF, 1.0], [-INF, -INF], [2.0, -INF]], dtype=dtype), [1])
        yield sample("logsumexp.default", torch.randn(3, 0).to(dtype), [1])
        yield sample("softmax.int", x, 1, torch.float64)
        yield sample("softmax.int", x, 1, torch.float32)
        yield sample("log_softmax.int", x, -2, torch.float64)
        yield sample("_safe_softmax.default", x, -1, torch.float32)
    yield sample("softmax.int", torch.arange(6).reshape(2, 3), 1, torch.float32)
    yield sample("logsumexp.default", torch.arange(6).reshape(2, 3), [1])
