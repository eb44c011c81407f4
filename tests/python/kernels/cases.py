"""Functions of PyTorch's, with the gradients they take and inputs to call them with, whose kernels are proven."""

from __future__ import annotations

import torch
import torch.nn.functional as F

DRAWS = torch.Generator().manual_seed(0)


def rand(*shape):
    return torch.randn(*shape, generator=DRAWS)


def ints(n, *shape):
    return torch.randint(0, n, shape, generator=DRAWS)


def leaves(*tensors):
    return [t.detach().requires_grad_() for t in tensors]


def bias_gelu(x, b):
    return F.gelu(x + b), F.gelu(x + b, approximate="tanh")


def transposed(x, y):
    return x.t() * 2 + y, (x.t() + y).t().contiguous()


def softmax(x, g):
    (x,) = leaves(x)
    y = torch.softmax(x, -1)
    return y, *torch.autograd.grad(y, x, g)


def log_softmax(x, g):
    (x,) = leaves(x)
    y = torch.log_softmax(x, -1)
    return y, *torch.autograd.grad(y, x, g)


def layer_norm(x, w, b, g):
    x, w, b = leaves(x, w, b)
    y = F.layer_norm(x, x.shape[-1:], w, b)
    return y, *torch.autograd.grad(y, (x, w, b), g)


def cross_entropy(x, target):
    (x,) = leaves(x)
    y = F.cross_entropy(x, target, ignore_index=3)
    return y, *torch.autograd.grad(y, x)


def embedding(w, i, g):
    (w,) = leaves(w)
    y = F.embedding(i, w)
    return y, *torch.autograd.grad(y, w, g)


def adamw(p, g, m, v):
    m = torch.lerp(m, g, 0.1)
    v = v * 0.999 + 0.001 * g * g
    p = p * (1 - 0.01 * 1e-3)
    return p - 1e-3 * (m / 0.19) / ((v / 0.002).sqrt() + 1e-8), m, v


def masked_slices(x):
    (x,) = leaves(x)
    y = x[1:, 2:5].sin().sum() + (x[::2] * x[:, -1:][::2]).sum() + F.pad(x, (2, 1, 1, 0)).exp().sum()
    return y, *torch.autograd.grad(y, x)


def extremes(x):
    return x.argmax(-1), x.argmin(0), x.amax(0), x.amin(-1), x.amax()


def sums(x):
    return x.sum(), x.sum(0), x.sum(1), x.mean((0, 1))


def sums_of_middle(x):
    return x.sum(1), x.sum((0, 2)), x.amax((0, 2))


def concatenated(x, y):
    return torch.cat([x, y * 2], 1), torch.stack([x, x + 1], -1)


def batch_norm(x, w, b, g):
    x, w, b = leaves(x, w, b)
    y = F.relu(F.batch_norm(x, None, None, w, b, training=True))
    return y, *torch.autograd.grad(y, (x, w, b), g)


CASES = [
    (bias_gelu, [rand(31, 50), rand(50)]),
    (bias_gelu, [rand(64, 64), rand(64)]),
    (transposed, [rand(40, 50), rand(50, 40)]),
    (softmax, [rand(7, 100), rand(7, 100)]),
    (softmax, [rand(3, 9001), rand(3, 9001)]),
    (log_softmax, [rand(2, 3, 33), rand(2, 3, 33)]),
    (layer_norm, [rand(33, 70), rand(70), rand(70), rand(33, 70)]),
    (layer_norm, [rand(1300, 16), rand(16), rand(16), rand(1300, 16)]),
    (layer_norm, [rand(40, 8200), rand(8200), rand(8200), rand(40, 8200)]),
    (cross_entropy, [rand(50, 77), ints(77, 50)]),
    (cross_entropy, [rand(9, 8300), ints(8300, 9)]),
    (embedding, [rand(100, 16), ints(100, 5, 8), rand(5, 8, 16)]),
    (adamw, [rand(1000), rand(1000), rand(1000), rand(1000).abs()]),
    (masked_slices, [rand(6, 9)]),
    (extremes, [rand(13, 40)]),
    (sums, [rand(70, 90)]),
    (sums, [rand(3000, 90).abs()]),
    (sums_of_middle, [rand(5, 30, 7)]),
    (concatenated, [rand(4, 5), rand(4, 5)]),
    (batch_norm, [rand(5, 3, 70, 65), rand(3), rand(3), rand(5, 3, 70, 65)]),
]


def name_of(case):
    f, inputs = case
    return f"{f.__name__}-{'x'.join(map(str, inputs[0].shape))}"


def in_dtype(inputs, dtype):
    return [t.to(dtype) if t.is_floating_point() else t for t in inputs]


def channel_statistics(x, w):
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True)
    return (x - mean) * (var + 1e-5).rsqrt() * w[:, None, None], x.transpose(1, 2).amax((0, 2))


def picked_columns(x, i):
    return x[:, i] * 2, x[i[:3]]


ASCEND = [c for c in CASES if c[0] is not cross_entropy] + [
    (channel_statistics, [rand(4, 3, 5, 6)[:, :, :, :5], rand(3)]),
    (softmax, [rand(2, 6, 3, 20).transpose(1, 2), rand(2, 3, 6, 20)]),
    (picked_columns, [rand(12, 30), ints(12, 17)]),
]


def special(x, y):
    """What NaN, infinities and ties do."""
    return (
        torch.maximum(x, y),
        torch.minimum(x, y),
        x.amax(1),
        x.amin(1),
        x.argmax(1),
        x.argmin(1),
        x.isnan(),
        x.isinf(),
    )


def long_softmax(x):
    return torch.softmax(x, -1), torch.log_softmax(x, -1), torch.logsumexp(x, -1)


def integers(x, y, s):
    yield_ = (x // y, torch.div(x, y, rounding_mode="trunc"), x % y, torch.fmod(x, y), x * y - x, x.abs(), x.sign())
    return *yield_, x & y, x | y, x ^ y, ~x, x << s, x >> s, torch.maximum(x, y), x.sum(1), x.amax(0), x**3


def bools(a, b):
    return a & b, a | b, a ^ b, ~a, a.any(1), a.all(0), a.any(), (a & b).sum(), torch.where(a, 1.5, 2.0), a == b


FUNCTIONS = {
    name: getattr(torch, name)
    for name in (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan sinh cosh tanh asinh acosh atanh erf "
        "sigmoid floor ceil round trunc sign"
    ).split()
}
BINARY = {
    "pow": torch.pow,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "floor_divide": torch.floor_divide,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "div": torch.div,
}


def gradient_alone(src, i):
    return torch.zeros(10, 4).index_add(0, i, src)


def dropped_out(x, g):
    (x,) = leaves(x)
    y = F.dropout(x, 0.3)
    return y, *torch.autograd.grad(y, x, g)


def added_at(x, i, src):
    return x.index_add(0, i, src), torch.zeros_like(x).scatter_add(1, i[:, None].expand(-1, x.shape[1]) % 4, src)


def taken(x, i):
    return x.gather(1, i[:, None]) + 1, F.embedding(i, x) * 2
