"""Sample arguments of the normalisations and their gradients."""

import itertools

import torch

from .sample import FLOATS, sample

MASKS3 = [[True, True, True], [True, False, False], [False, True, True], [False, False, True]]


def randn(*shape, dtype):
    return torch.randn(shape).to(dtype)


def parameter_dtypes(dtype):
    """Parameters of 16-bit inputs may be f32."""
    return [dtype, torch.float32] if dtype == torch.bfloat16 else [dtype]


def layer():
    for dtype in FLOATS:
        for shape, normalized in (((4, 5), [5]), ((2, 3, 4), [3, 4]), ((2, 3, 4), [4]), ((6,), [6]), ((0, 3), [3])):
            for pdtype, affine in itertools.product(parameter_dtypes(dtype), (True, False)):
                x = (torch.randn(shape) * 2 + 3).to(dtype)
                w = randn(*normalized, dtype=pdtype) if affine else None
                b = randn(*normalized, dtype=pdtype) if affine else None
                yield sample("native_layer_norm.default", x, normalized, w, b, 1e-5)
                _, mean, rstd = torch.native_layer_norm(x, normalized, w, b, 1e-5)
                g = torch.randn(shape).to(dtype)
                for mask in MASKS3 if affine else [[True, False, False]]:
                    yield sample("native_layer_norm_backward.default", g, x, normalized, mean, rstd, w, b, mask)
        w = randn(4, dtype=dtype)
        yield sample("native_layer_norm.default", randn(3, 4, dtype=dtype), [4], w, None, 0.1)
        x = randn(2, 3, 4, dtype=dtype).transpose(1, 2)
        yield sample("native_layer_norm.default", x, [3], None, None, 0.1)


def group():
    for dtype in FLOATS:
        for shape, groups in (((2, 4, 3), 2), ((2, 6, 2, 3), 3), ((3, 8), 2), ((2, 4, 5), 1)):
            n, channels, area = shape[0], shape[1], torch.Size(shape[2:]).numel()
            for pdtype, affine in itertools.product(parameter_dtypes(dtype), (True, False)):
                x = (torch.randn(shape) * 2 + 3).to(dtype)
                w = randn(channels, dtype=pdtype) if affine else None
                b = randn(channels, dtype=pdtype) if affine else None
                yield sample("native_group_norm.default", x, w, b, n, channels, area, groups, 1e-5)
                _, mean, rstd = torch.native_group_norm(x, w, b, n, channels, area, groups, 1e-5)
                g = torch.randn(shape).to(dtype)
                for mask in MASKS3 if affine else [[True, False, False]]:
                    args = (g, x, mean, rstd, w, n, channels, area, groups, mask)
                    yield sample("native_group_norm_backward.default", *args)


def batch():
    for dtype in FLOATS:
        for shape in ((4, 3), (2, 3, 5), (2, 3, 2, 4)):
            for pdtype, affine in itertools.product(parameter_dtypes(dtype), (True, False)):
                x = (torch.randn(shape) * 2 + 3).to(dtype)
                w = randn(3, dtype=pdtype) if affine else None
                b = randn(3, dtype=pdtype) if affine else None
                mean, var = randn(3, dtype=pdtype), torch.rand(3).to(pdtype) + 0.5
                for training in (True, False):
                    yield sample("_native_batch_norm_legit_functional.default", x, w, b, mean, var, training, 0.1, 1e-5)
                yield sample("_native_batch_norm_legit_no_training.default", x, w, b, mean, var, 0.1, 1e-5)
                yield sample("_native_batch_norm_legit.no_stats", x, w, b, True, 0.1, 1e-5)
                yield sample("_native_batch_norm_legit.default", x, w, b, mean, var, False, 0.1, 1e-5)
                yield sample("native_batch_norm.default", x, w, b, mean, var, False, 0.1, 1e-5)
                yield sample("native_batch_norm.default", x, w, b, None, None, True, 0.1, 1e-5)
                _, save, invstd = torch.native_batch_norm(x, w, b, mean.clone(), var.clone(), True, 0.1, 1e-5)
                g = torch.randn(shape).to(dtype)
                for mask in MASKS3 if affine else [[True, False, False]]:
                    args = (g, x, w, mean, var, save, invstd, True, 1e-5, mask)
                    yield sample("native_batch_norm_backward.default", *args)
                    empty = torch.empty(0, dtype=pdtype)
                    args = (g, x, w, mean, var, empty, empty, False, 1e-5, mask)
                    yield sample("native_batch_norm_backward.default", *args)


def rms_gradient(g, x, normalized, rstd, weight, mask):
    """By autograd, through rstd too."""
    x = x.double().requires_grad_()
    w = (torch.ones(normalized) if weight is None else weight).double().requires_grad_()
    dims = list(range(-len(normalized), 0))
    eps = (rstd.double() ** -2 - (x.detach() ** 2).mean(dims, True)).clamp(min=0)
    y = x * ((x**2).mean(dims, True) + eps).rsqrt() * w
    dx, dw = torch.autograd.grad(y, (x, w), g.double())
    return [dx.to(g.dtype) if mask[0] else None, dw.to(g.dtype) if mask[1] else None]


def rms():
    for dtype in FLOATS:
        for shape, normalized in (((4, 5), [5]), ((2, 3, 4), [3, 4]), ((6,), [6])):
            x, w = randn(*shape, dtype=dtype), randn(*normalized, dtype=dtype)
            for weight, eps in itertools.product((w, None), (1e-3, None)):
                yield sample("_fused_rms_norm.default", x, normalized, weight, eps)
                yield sample("rms_norm.default", x, normalized, weight, eps)
                _, rstd = torch.ops.aten._fused_rms_norm.default(x, normalized, weight, eps)
                g = torch.randn(shape).to(dtype)
                for mask in ([True, True], [False, True], [True, False]):
                    mask = [mask[0], mask[1] and weight is not None]
                    args = (g, x, normalized, rstd, weight, mask)
                    yield sample("_fused_rms_norm_backward.default", *args, reference=rms_gradient)


def weight():
    for dtype in FLOATS:
        for shape, dim in (((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 0), ((2, 3, 4), 2)):
            v = randn(*shape, dtype=dtype)
            g = randn(*[n if i == dim else 1 for i, n in enumerate(shape)], dtype=dtype)
            yield sample("_weight_norm_interface.default", v, g, dim)
            _, norms = torch._weight_norm_interface(v, g, dim)
            yield sample("_weight_norm_interface_backward.default", randn(*shape, dtype=dtype), v, g, norms, dim)


def samples():
    torch.manual_seed(5)
    for make in (layer, group, batch, rms, weight):
        yield from make()
