"""Sample arguments of the activations and their gradients."""

import torch

from .sample import FLOATS, sample
from .samples_pointwise import vector

PLAIN = "relu relu6 silu mish selu hardswish hardsigmoid sigmoid tanh elu celu leaky_relu hardtanh softplus softshrink"
PLAIN += " hardshrink log_sigmoid log_sigmoid_forward gelu special_expit"
WITH_INPUT = "silu mish hardswish hardsigmoid"
WITH_OUTPUT = "sigmoid tanh"


def gradients(dtype):
    """(g, x) of every shape that matters; x holds the kinks."""
    torch.manual_seed(3)
    x = vector(dtype)
    yield torch.randn(x.shape).to(dtype), x
    yield torch.randn(2, 3).to(dtype), torch.randn(2, 3).mul(3).to(dtype)
    yield torch.randn(()).to(dtype), torch.tensor(-0.7, dtype=dtype)
    yield torch.empty(0, 3, dtype=dtype), torch.empty(0, 3, dtype=dtype)
    yield torch.randn(3, 2).to(dtype).T, torch.randn(2, 3).to(dtype)


def finite_gradients(dtype):
    for g, x in gradients(dtype):
        yield g, x.nan_to_num(0.3, 7.0, -7.0)


def forward():
    for dtype in FLOATS:
        for name in PLAIN.split():
            for x in (vector(dtype, special=False), torch.tensor(0.3, dtype=dtype), torch.empty(0, 2, dtype=dtype)):
                yield sample(f"{name}.default", x)
        for name in ("relu", "relu6", "hardtanh", "leaky_relu", "silu", "hardsigmoid"):
            yield sample(f"{name}.default", torch.tensor([float("nan"), float("inf")], dtype=dtype))
        x = vector(dtype, special=False)
        yield sample("gelu.default", x, approximate="tanh")
        yield sample("gelu.default", x, approximate="none")
        yield sample("elu.default", x, 0.7, 1.3, 0.4)
        yield sample("celu.default", x, 0.7)
        yield sample("leaky_relu.default", x, 0.3)
        yield sample("hardtanh.default", x, -0.3, 0.7)
        yield sample("softplus.default", x, 2.0, 3.0)
        yield sample("softshrink.default", x, 0.1)
        yield sample("hardshrink.default", x, 1.0)
        yield sample("glu.default", torch.randn(4, 6).to(dtype))
        yield sample("glu.default", torch.randn(4, 6).to(dtype), 0)
        yield sample("prelu.default", torch.randn(2, 3, 4).to(dtype), torch.tensor([0.1, 0.2, 0.3], dtype=dtype))
        yield sample("prelu.default", torch.randn(5).to(dtype), torch.tensor([0.1], dtype=dtype))
        yield sample("_prelu_kernel.default", torch.randn(2, 3, 4).to(dtype), torch.randn(1, 3, 1).to(dtype))
        noise = torch.empty_like(x)
        yield sample("rrelu_with_noise.default", x, noise.zero_(), 0.1, 0.3, False)
        yield sample("rrelu_with_noise_functional.default", x, torch.zeros_like(x), 0.1, 0.3, False)
    yield sample("relu.default", torch.arange(-2, 3))
    yield sample("hardtanh.default", torch.arange(-2, 3), -1, 1)


def backward():
    for dtype in FLOATS:
        for g, x in finite_gradients(dtype):
            for name in WITH_INPUT.split():
                yield sample(f"{name}_backward.default", g, x)
            for approximate in ("none", "tanh"):
                yield sample("gelu_backward.default", g, x, approximate=approximate)
            yield sample("sigmoid_backward.default", g, x.sigmoid())
            yield sample("tanh_backward.default", g, x.tanh())
            for is_result in (False, True):
                yield sample("elu_backward.default", g, 0.7, 1.3, 0.4, is_result, x.clamp(min=-0.9) if is_result else x)
            yield sample("leaky_relu_backward.default", g, x, 0.1, False)
            yield sample("softplus_backward.default", g, x, 1.0, 20.0)
            yield sample("softplus_backward.default", g, x, 2.0, 3.0)
            yield sample("softshrink_backward.default", g, x, 0.5)
            yield sample("hardshrink_backward.default", g, x, 0.5)
            buffer = (-x.abs()).exp()
            yield sample("log_sigmoid_backward.default", g, x, buffer)
            yield sample("rrelu_with_noise_backward.default", g, x, torch.rand_like(x), 0.1, 0.3, True, False)
            yield sample("rrelu_with_noise_backward.default", g, x, torch.rand_like(x), 0.1, 0.3, False, False)
        for g, x in gradients(dtype):
            yield sample("threshold_backward.default", g, x, 0)
            yield sample("threshold_backward.default", g, x, 0.5)
            yield sample("hardtanh_backward.default", g, x, -1.0, 0.5)
        yield sample("glu_backward.default", torch.randn(4, 3).to(dtype), torch.randn(4, 6).to(dtype), -1)
        yield sample("glu_backward.default", torch.randn(2, 6).to(dtype), torch.randn(4, 6).to(dtype), 0)
        g, x, w = torch.randn(2, 3, 4).to(dtype), torch.randn(2, 3, 4).to(dtype), torch.randn(1, 3, 1).to(dtype)
        yield sample("_prelu_kernel_backward.default", g, x, w)
        yield sample("native_dropout_backward.default", g, torch.rand(2, 3, 4) < 0.7, 1 / 0.7)


def samples():
    yield from forward()
    yield from backward()
