"""Calls with symbolic sizes: inputs and statement as text, tensors at sizes other than the hints, what eager gives."""

import torch

S0, S1 = 6, 5
MAX = 9223372036854775807
aten = torch.ops.aten


def randn(*shape):
    return torch.randn(shape)


def index(below, *shape):
    return torch.randint(0, below, shape)


def gradients(grad, left, right):
    left, right = left.detach().requires_grad_(), right.detach().requires_grad_()
    return torch.autograd.grad(torch.matmul(left, right), (left, right), grad)


CASES = [
    (
        "%x: f32[s0, 12]",
        "%r: f32[s0, 3, 4] = aten.view.default(%x, [s0, 3, 4])",
        lambda: [randn(S0, 12)],
        lambda x: x.view(S0, 3, 4),
    ),
    ("%x: f32[s0, 12]", "%r: f32[12*s0] = aten.view.default(%x, [-1])", lambda: [randn(S0, 12)], lambda x: x.view(-1)),
    (
        "%x: f32[s0, 4]",
        "%r: f32[s0 - 1, 4] = aten.slice.Tensor(%x, 0, 1, 9223372036854775807)",
        lambda: [randn(S0, 4)],
        lambda x: x[1:],
    ),
    (
        "%x: f32[s0, 4]",
        "%r: f32[2, 4] = aten.slice.Tensor(%x, 0, -2, 9223372036854775807)",
        lambda: [randn(S0, 4)],
        lambda x: x[-2:],
    ),
    (
        "%x: f32[s0, 4]",
        "%r: f32[s0 - 3, 4] = aten.slice.Tensor(%x, 0, 2, -1)",
        lambda: [randn(S0, 4)],
        lambda x: x[2:-1],
    ),
    (
        "%x: f32[s0, 4]",
        "%r: f32[floordiv(s0 + 1, 2), 4] = aten.slice.Tensor(%x, 0, 0, 9223372036854775807, 2)",
        lambda: [randn(S0, 4)],
        lambda x: x[::2],
    ),
    (
        "%x: f32[s0, 4]",
        "%r: f32[floordiv(s0, 2), 4] = aten.slice.Tensor(%x, 0, 1, 9223372036854775807, 2)",
        lambda: [randn(S0, 4)],
        lambda x: x[1::2],
    ),
    (
        "%x: f32[s0, 4]",
        "%r: f32[floordiv(s0, 2), 4] = aten.slice.Tensor(%x, 0, 0, floordiv(s0, 2))",
        lambda: [randn(S0, 4)],
        lambda x: x[: S0 // 2],
    ),
    (
        "%x: f32[s0, 4]",
        "%r: f32[s0 - floordiv(s0, 2), 4] = aten.slice.Tensor(%x, 0, floordiv(s0, 2), 9223372036854775807)",
        lambda: [randn(S0, 4)],
        lambda x: x[S0 // 2 :],
    ),
    (
        "%x: f32[s0 - 1, 4]",
        "%r: f32[s0, 4] = aten.slice_backward.default(%x, [s0, 4], 0, 1, 9223372036854775807, 1)",
        lambda: [randn(S0 - 1, 4)],
        lambda x: aten.slice_backward(x, [S0, 4], 0, 1, MAX, 1),
    ),
    (
        "%x: f32[2, 4]",
        "%r: f32[s0, 4] = aten.slice_backward.default(%x, [s0, 4], 0, -2, 9223372036854775807, 1)",
        lambda: [randn(2, 4)],
        lambda x: aten.slice_backward(x, [S0, 4], 0, -2, MAX, 1),
    ),
    (
        "%x: f32[floordiv(s0, 2), 4]",
        "%r: f32[s0, 4] = aten.slice_backward.default(%x, [s0, 4], 0, 1, 9223372036854775807, 2)",
        lambda: [randn(S0 // 2, 4)],
        lambda x: aten.slice_backward(x, [S0, 4], 0, 1, MAX, 2),
    ),
    (
        "%x: f32[floordiv(s0 + 1, 2), 4]",
        "%r: f32[s0, 4] = aten.slice_backward.default(%x, [s0, 4], 0, 0, 9223372036854775807, 2)",
        lambda: [randn((S0 + 1) // 2, 4)],
        lambda x: aten.slice_backward(x, [S0, 4], 0, 0, MAX, 2),
    ),
    ("%x: f32[s0, 4]", "%r: f32[4] = aten.select.int(%x, 0, -1)", lambda: [randn(S0, 4)], lambda x: x[-1]),
    ("%x: f32[s0, 4]", "%r: f32[4] = aten.select.int(%x, 0, s0 - 2)", lambda: [randn(S0, 4)], lambda x: x[S0 - 2]),
    (
        "%x: f32[4]",
        "%r: f32[s0, 4] = aten.select_backward.default(%x, [s0, 4], 0, -1)",
        lambda: [randn(4)],
        lambda x: aten.select_backward(x, [S0, 4], 0, -1),
    ),
    (
        "%x: f32[s0, 4], %y: f32[4]",
        "%r: f32[s0, 4] = aten.select_scatter.default(%x, %y, 0, -1)",
        lambda: [randn(S0, 4), randn(4)],
        lambda x, y: aten.select_scatter(x, y, 0, -1),
    ),
    (
        "%x: f32[s0, 4], %y: f32[s0 - 1, 4]",
        "%r: f32[s0, 4] = aten.slice_scatter.default(%x, %y, 0, 1, 9223372036854775807)",
        lambda: [randn(S0, 4), randn(S0 - 1, 4)],
        lambda x, y: aten.slice_scatter(x, y, 0, 1, MAX),
    ),
    (
        "%x: f32[3*s0, 4]",
        "%q: f32[s0, 4], %p: f32[s0, 4], %r: f32[s0, 4] = aten.split.Tensor(%x, s0)",
        lambda: [randn(3 * S0, 4)],
        lambda x: x.split(S0),
    ),
    (
        "%x: f32[s0, 4]",
        "%q: f32[floordiv(s0 + 1, 2), 4], %r: f32[s0 - floordiv(s0 + 1, 2), 4] = aten.chunk.default(%x, 2)",
        lambda: [randn(S0, 4)],
        lambda x: x.chunk(2),
    ),
    (
        "%x: f32[s0 + s1]",
        "%q: f32[s0], %r: f32[s1] = aten.split_with_sizes.default(%x, [s0, s1])",
        lambda: [randn(S0 + S1)],
        lambda x: x.split([S0, S1]),
    ),
    (
        "%x: f32[s0, 4], %y: f32[s1, 4]",
        "%r: f32[s0 + s1, 4] = aten.cat.default([%x, %y])",
        lambda: [randn(S0, 4), randn(S1, 4)],
        lambda x, y: torch.cat([x, y]),
    ),
    (
        "%x: f32[s0, 4], %y: f32[s0, 4]",
        "%r: f32[s0, 2, 4] = aten.stack.default([%x, %y], 1)",
        lambda: [randn(S0, 4), randn(S0, 4)],
        lambda x, y: torch.stack([x, y], 1),
    ),
    (
        "%x: f32[1, 4], %y: f32[s0]",
        "%r: f32[s0, 4] = aten.expand.default(%x, [s0, -1])",
        lambda: [randn(1, 4), randn(S0)],
        lambda x, y: x.expand(S0, -1),
    ),
    (
        "%x: f32[s0, 4], %y: f32[s1]",
        "%r: f32[s0*s1, 12] = aten.repeat.default(%x, [s1, 3])",
        lambda: [randn(S0, 4), randn(S1)],
        lambda x, y: x.repeat(S1, 3),
    ),
    (
        "%x: f32[s0, 4]",
        "%r: f32[s0, 4] = aten.roll.default(%x, [2, -1], [0, 1])",
        lambda: [randn(S0, 4)],
        lambda x: x.roll([2, -1], [0, 1]),
    ),
    ("%x: f32[s0, 4]", "%r: f32[s0, 4] = aten.roll.default(%x, [3], [])", lambda: [randn(S0, 4)], lambda x: x.roll(3)),
    ("%x: f32[s0, s0]", "%r: f32[s0, s0] = aten.tril.default(%x, -1)", lambda: [randn(S0, S0)], lambda x: x.tril(-1)),
    (
        "%x: f32[s0, s1]",
        "%r: f32[s0, s1] = aten.triu.default(%x, s0 - s1)",
        lambda: [randn(S0, S1)],
        lambda x: x.triu(S0 - S1),
    ),
    (
        "%x: f32[s0, s1]",
        "%r: f32[2*s0, s1 + 1] = aten.constant_pad_nd.default(%x, [1, 0, 0, s0], 2.0)",
        lambda: [randn(S0, S1)],
        lambda x: aten.constant_pad_nd(x, [1, 0, 0, S0], 2.0),
    ),
    (
        "%x: f32[s0, s1]",
        "%r: f32[s0, s1 - 1] = aten.constant_pad_nd.default(%x, [-2, 1])",
        lambda: [randn(S0, S1)],
        lambda x: aten.constant_pad_nd(x, [-2, 1]),
    ),
    ("%x: f32[s0, s1]", "%r: f32[s1] = aten.mean.dim(%x, [0])", lambda: [randn(S0, S1)], lambda x: x.mean(0)),
    ("%x: f32[s0, s1]", "%r: f32[] = aten.mean.default(%x)", lambda: [randn(S0, S1)], lambda x: x.mean()),
    (
        "%x: f32[s0, s1]",
        "%r: f32[1, s1] = aten.var.correction(%x, [0], correction=1, keepdim=true)",
        lambda: [randn(S0, S1)],
        lambda x: x.var(0, keepdim=True),
    ),
    (
        "%x: f32[s0, s1]",
        "%r: f32[s1] = aten.linalg_vector_norm.default(%x, inf, [0])",
        lambda: [randn(S0, S1)],
        lambda x: torch.linalg.vector_norm(x, float("inf"), [0]),
    ),
    ("%x: f32[s0, s1]", "%r: i64[] = aten.argmax.default(%x)", lambda: [randn(S0, S1)], lambda x: x.argmax()),
    (
        "%x: f32[s0, s1], %i: i64[s0], %j: i64[s0]",
        "%r: f32[s0] = aten.index.Tensor(%x, [%i, %j])",
        lambda: [randn(S0, S1), torch.randint(-S0, S0, (S0,)), torch.randint(-S1, S1, (S0,))],
        lambda x, i, j: x[i, j],
    ),
    (
        "%x: f32[s0, s1], %i: i64[s0], %j: i64[s0], %v: f32[s0]",
        "%r: f32[s0, s1] = aten.index_put.default(%x, [%i, %j], %v, true)",
        lambda: [randn(S0, S1), torch.randint(-S0, S0, (S0,)), torch.randint(-S1, S1, (S0,)), randn(S0)],
        lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
    ),
    (
        "%x: f32[s0, 3], %i: i64[s0]",
        "%r: f32[s1, 3] = aten.embedding_dense_backward.default(%x, %i, s1, 0, true)",
        lambda: [randn(S0, 3), torch.randint(0, S1, (S0,))],
        lambda x, i: aten.embedding_dense_backward(x, i, S1, 0, True),
    ),
    (
        "%x: f32[s1, 3], %i: i64[s0, 2]",
        "%r: f32[s0, 2, 3] = aten.embedding.default(%x, %i)",
        lambda: [randn(S1, 3), torch.randint(0, S1, (S0, 2))],
        lambda x, i: aten.embedding(x, i),
    ),
    (
        "%x: f32[s0, s1], %i: i64[s0, 1]",
        "%r: f32[s0, 1] = aten.gather.default(%x, 1, %i)",
        lambda: [randn(S0, S1), torch.randint(0, S1, (S0, 1))],
        lambda x, i: x.gather(1, i),
    ),
    (
        "%x: f32[s0, s1], %i: i64[s0, 1], %v: f32[s0, 1]",
        "%r: f32[s0, s1] = aten.scatter_add.default(%x, 1, %i, %v)",
        lambda: [randn(S0, S1), torch.randint(0, S1, (S0, 1)), randn(S0, 1)],
        lambda x, i, v: x.scatter_add(1, i, v),
    ),
    ("%x: f32[s0]", "%r: i64[s0] = aten.arange.default(s0)", lambda: [randn(S0)], lambda x: torch.arange(S0)),
    ("%x: f32[s0]", "%r: i64[s0 - 1] = aten.arange.start(1, s0)", lambda: [randn(S0)], lambda x: torch.arange(1, S0)),
    (
        "%x: f32[s0]",
        "%r: f32[s0, 2] = aten.full.default([s0, 2], s0, dtype=f32)",
        lambda: [randn(S0)],
        lambda x: torch.full((S0, 2), float(S0)),
    ),
    ("%x: f32[s0]", "%r: f32[s0] = aten.new_zeros.default(%x, [s0])", lambda: [randn(S0)], lambda x: x.new_zeros(S0)),
    (
        "%x: f32[s0, 4]",
        "%r: f32[s0 - 2, 4, 3] = aten.unfold.default(%x, 0, 3, 1)",
        lambda: [randn(S0, 4)],
        lambda x: x.unfold(0, 3, 1),
    ),
    (
        "%x: f32[s0 - 2, 4, 3]",
        "%r: f32[s0, 4] = aten.unfold_backward.default(%x, [s0, 4], 0, 3, 1)",
        lambda: [randn(S0 - 2, 4, 3)],
        lambda x: aten.unfold_backward(x, [S0, 4], 0, 3, 1),
    ),
    (
        "%x: f32[s0, 8]",
        "%r: f32[min(s0, 7)] = aten.diagonal.default(%x, 1)",
        lambda: [randn(S0, 8)],
        lambda x: x.diagonal(1),
    ),
    (
        "%x: f32[min(s0, 7)]",
        "%r: f32[s0, 8] = aten.diagonal_backward.default(%x, [s0, 8], 1, 0, 1)",
        lambda: [randn(min(S0, 7))],
        lambda x: aten.diagonal_backward(x, [S0, 8], 1, 0, 1),
    ),
    (
        "%x: f32[s0, 8, s1, 3]",
        "%r: f32[s0, 2, 2*s1, 6] = aten.pixel_shuffle.default(%x, 2)",
        lambda: [randn(S0, 8, S1, 3)],
        lambda x: torch.pixel_shuffle(x, 2),
    ),
    (
        "%x: f32[s0, s1, 5], %a: f32[s0, s1, 4], %b: f32[4, 5]",
        "%q: f32[s0, s1, 4], %r: f32[4, 5] = aten.matmul_backward.default(%x, %a, %b, [true, true])",
        lambda: [randn(S0, S1, 5), randn(S0, S1, 4), randn(4, 5)],
        gradients,
    ),
    (
        "%x: f32[s0, 3, 5], %a: f32[3, 4], %b: f32[s0, 4, 5]",
        "%r: f32[3, 4], %q: f32[s0, 4, 5] = aten.matmul_backward.default(%x, %a, %b, [true, true])",
        lambda: [randn(S0, 3, 5), randn(3, 4), randn(S0, 4, 5)],
        gradients,
    ),
    (
        "%x: f32[s0, s1], %y: f32[s1, s0]",
        "%r: f32[s0, s0] = aten.matmul.default(%x, %y)",
        lambda: [randn(S0, S1), randn(S1, S0)],
        lambda x, y: x @ y,
    ),
    ("%x: f32[s0, s1]", "%r: f32[s0, s1] = aten.flip.default(%x, [0])", lambda: [randn(S0, S1)], lambda x: x.flip(0)),
    ("%x: f32[s0, s1]", "%r: f32[s1*s0] = aten.flatten.using_ints(%x)", lambda: [randn(S0, S1)], lambda x: x.flatten()),
]
