"""Sample arguments of views, windows and constants."""

import torch

from .sample import sample

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def values(*shape, dtype=torch.float32):
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    if not dtype.is_floating_point:
        return torch.randint(0, 50, shape).to(dtype)
    return torch.randn(shape).to(dtype)


def shapes():
    for dtype in DTYPES:
        x = values(2, 3, 4, dtype=dtype)
        yield sample("view.default", x, [6, 4])
        yield sample("view.default", x, [-1, 2])
        yield sample("view_copy.default", x, [24])
        yield sample("_unsafe_view.default", x, [1, 24, 1])
        yield sample("reshape.default", x.transpose(0, 2), [8, 3])
        yield sample("permute.default", x, [2, -3, 1])
        yield sample("permute_copy.default", x, [0, 2, 1])
        yield sample("transpose.int", x, -1, 0)
        yield sample("transpose_copy.int", x, 1, 1)
        yield sample("expand.default", values(1, 3, 1, dtype=dtype), [2, 4, -1, 5])
        yield sample("expand_copy.default", values(3, dtype=dtype), [2, 3])
        yield sample("flip.default", x, [0, -1])
        yield sample("flip.default", x, [])
        yield sample("roll.default", x, [1, -1], [0, 2])
        yield sample("roll.default", x, [5], [])
        yield sample("roll.default", x, [7], [1])
        yield sample("repeat.default", x, [2, 1, 3, 1])
        yield sample("repeat.default", x, [1, 2, 0])
        yield sample("cat.default", [x, x[:1], x[:0]])
        yield sample("cat.default", [x, x[:, :, 1:]], -1)
        yield sample("stack.default", [x, x, x], -1)
        yield sample("stack.default", [x], 0)
        yield sample("tril.default", x)
        yield sample("tril.default", x, 1)
        yield sample("triu.default", x, -1)
        yield sample("triu.default", x, 9)
    x, scalar, empty = values(2, 1, 3, 1), values(), values(0, 3)
    yield sample("view.default", scalar, [1, 1])
    yield sample("view.default", values(1, 1), [])
    yield sample("view.default", empty, [3, 0])
    yield sample("permute.default", scalar, [])
    yield sample("transpose.int", scalar, 0, -1)
    yield sample("t.default", values(2, 3))
    yield sample("t.default", values(3))
    yield sample("t.default", scalar)
    yield sample("t_copy.default", values(2, 3))
    yield sample("numpy_T.default", values(2, 3))
    yield sample("mT.default", values(4, 2, 3))
    yield sample("swapaxes.default", x, 0, 2)
    yield sample("movedim.int", x, 0, -1)
    yield sample("movedim.intlist", values(2, 3, 4, 5), [0, -1], [2, 0])
    yield sample("moveaxis.intlist", values(2, 3, 4, 5), [3, 1], [0, 1])
    for squeeze in ("squeeze", "squeeze_copy"):
        yield sample(f"{squeeze}.default", x)
        yield sample(f"{squeeze}.default", scalar)
        yield sample(f"{squeeze}.dim", x, -1)
        yield sample(f"{squeeze}.dim", x, 0)
        yield sample(f"{squeeze}.dim", scalar, 0)
        yield sample(f"{squeeze}.dims", x, [1, 2, -1])
    yield sample("unsqueeze.default", x, -1)
    yield sample("unsqueeze.default", scalar, 0)
    yield sample("unsqueeze_copy.default", x, 2)
    yield sample("flatten.using_ints", values(2, 3, 4), 1, -1)
    yield sample("flatten.using_ints", scalar)
    yield sample("unflatten.int", values(2, 12), -1, [3, -1])
    yield sample("expand.default", scalar, [2, 3])
    yield sample("expand.default", values(1, 0), [3, 0])
    yield sample("expand_as.default", values(3, 1), values(2, 3, 4))
    yield sample("broadcast_to.default", values(1, 3), [2, 3])
    yield sample("flip.default", scalar, [])
    yield sample("flip.default", empty, [0])
    yield sample("roll.default", empty, [1], [0])
    yield sample("roll.default", scalar, [1], [])
    for k in range(-1, 4):
        yield sample("rot90.default", values(2, 3, 4), k, [0, -1])
    yield sample("repeat.default", scalar, [2, 2])
    yield sample("repeat.default", scalar, [])
    yield sample("repeat.default", empty, [2, 2])
    yield sample("tile.default", values(2, 3), [2])
    yield sample("tile.default", values(3), [2, 2])
    yield sample("view_as.default", values(2, 6), values(3, 4))
    yield sample("reshape_as.default", values(2, 6).t(), values(3, 4))
    yield sample("alias_copy.default", values(2, 6))
    yield sample("detach_copy.default", values(2, 6))
    yield sample("moveaxis.int", values(2, 3, 4), -1, 0)
    yield sample("concat.default", [values(2, 3), values(2, 3)], 1)
    yield sample("native_channel_shuffle.default", values(2, 6, 2, 2), 2)
    yield sample("pixel_shuffle.default", values(2, 8, 3, 4), 2)
    yield sample("pixel_shuffle.default", values(9, 2, 1), 3)
    yield sample("pixel_unshuffle.default", values(2, 2, 6, 4), 2)
    yield sample("pixel_unshuffle.default", values(2, 3, 3), 3)
    yield sample("channel_shuffle.default", values(2, 6, 2, 2), 3)
    yield sample("cat.default", [values(0), values(2, 3), values(1, 3)])
    yield sample("cat.default", [values(0), values(0)])
    yield sample("cat.default", [values(2, dtype=torch.int64), values(2, dtype=torch.bfloat16)])
    yield sample("cat.default", [values(2, dtype=torch.float16), values(2, dtype=torch.bfloat16)])
    yield sample("stack.default", [scalar, scalar])
    yield sample("stack.default", [empty, empty], 1)
    yield sample("tril.default", values(0, 3))
    yield sample("triu.default", values(3, 1, 5), 2)


BOUNDS = [(0, None), (None, 2), (1, 4), (-3, -1), (-99, 99), (3, 1), (5, 9), (2, 9223372036854775807), (0, 0)]


def windows():
    for dtype in DTYPES:
        x = values(5, 4, dtype=dtype)
        yield sample("slice.Tensor", x, 0, 1, 3)
        yield sample("select.int", x, 1, -1)
        yield sample("slice_scatter.default", x, values(2, 4, dtype=dtype), 0, 1, 3)
        yield sample("slice_scatter.default", x, values(5, 2, dtype=dtype), 1, 0, 4, 2)
        yield sample("select_scatter.default", x, values(5, dtype=dtype), 1, -2)
        yield sample("diagonal_scatter.default", x, values(3, dtype=dtype), 1)
        yield sample("diagonal.default", x, -1)
        yield sample("unfold.default", x, 0, 3, 1)
        yield sample("constant_pad_nd.default", x, [1, 2], 1)
    for start, end in BOUNDS:
        for step in (1, 2, 3, 7):
            for dim in (0, -1):
                x = values(5, 6)
                yield sample("slice.Tensor", x, dim, start, end, step)
                grad = torch.ops.aten.slice(x, dim, start, end, step)
                yield sample("slice_scatter.default", x, torch.randn_like(grad), dim, start, end, step)
                start0, end0 = 0 if start is None else start, 9223372036854775807 if end is None else end
                yield sample("slice_backward.default", torch.randn_like(grad), [5, 6], dim, start0, end0, step)
    yield sample("slice.Tensor", values(5, 6))
    yield sample("slice.Tensor", values(0, 6), 0, 1, 3)
    yield sample("slice_copy.Tensor", values(5, 6), 1, 2)
    yield sample("slice_backward.default", values(0, 6), [0, 6], 0, 0, 4, 1)
    yield sample("slice_backward.default", values(2, 3, dtype=torch.bfloat16), [4, 3], 0, 1, 4, 2)
    yield sample("narrow.default", values(5, 6), 1, -4, 2)
    yield sample("narrow.default", values(5, 6), 0, 5, 0)
    yield sample("narrow_copy.default", values(5, 6), 0, 1, 3)
    for index in (0, 2, -1, -3):
        yield sample("select.int", values(2, 3, 4), -2, index)
        yield sample("select_copy.int", values(2, 3, 4), 1, index)
        yield sample("select_backward.default", values(2, 4), [2, 3, 4], 1, index)
        yield sample("select_scatter.default", values(2, 3, 4), values(2, 4), 1, index)
    yield sample("select.int", values(3), 0, 1)
    yield sample("select_backward.default", values(), [3], 0, -2)
    yield sample("select_scatter.default", values(3), values(), 0, 1)
    for split in ("split", "split_copy", "unsafe_split"):
        yield sample(f"{split}.Tensor", values(7, 2), 3)
        yield sample(f"{split}.Tensor", values(2, 6), 2, -1)
    yield sample("split.Tensor", values(2, 6), 9, 1)
    yield sample("split.Tensor", values(0, 6), 3)
    yield sample("split.Tensor", values(0, 6), 0)
    for split in ("split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes"):
        yield sample(f"{split}.default", values(2, 6), [1, 0, 5], 1)
    yield sample("chunk.default", values(7, 2), 3)
    yield sample("unsafe_chunk.default", values(2, 7), 4, -1)
    yield sample("tensor_split.sections", values(7, 2), 3)
    yield sample("unbind.int", values(3, 2))
    yield sample("unbind.int", values(2, 3, 1), -1)
    yield sample("unbind_copy.int", values(2, 3), 1)
    for offset in (-9, -4, -2, -1, 0, 1, 3, 5):
        for shape in ((4, 4), (5, 3), (3, 5), (0, 3), (3, 0)):
            x = values(*shape)
            if -shape[0] <= offset <= shape[1]:
                d = torch.diagonal(x, offset)
                yield sample("diagonal.default", x, offset)
                yield sample("diagonal_copy.default", x, offset)
                yield sample("diagonal_backward.default", torch.randn_like(d), list(shape), offset, 0, 1)
                yield sample("diagonal_scatter.default", x, torch.randn_like(d), offset)
        x = values(2, 4, 3)
        if -3 <= offset <= 2:
            d = torch.diagonal(x, offset, -1, 0)
            yield sample("diagonal.default", x, offset, -1, 0)
            yield sample("diagonal_backward.default", torch.randn_like(d), [2, 4, 3], offset, -1, 0)
            yield sample("diagonal_scatter.default", x, torch.randn_like(d), offset, -1, 0)
        yield sample("diag_embed.default", values(2, 3), offset)
    yield sample("diag_embed.default", values(2, 3), 1, 0, 2)
    yield sample("trace.default", values(3, 4))
    yield sample("trace.default", values(3, 3, dtype=torch.int32))
    for size, step in ((1, 1), (3, 1), (3, 2), (2, 3), (7, 1), (2, 2)):
        for dim in (0, -1):
            x = values(7, 7)
            u = x.unfold(dim, size, step)
            yield sample("unfold.default", x, dim, size, step)
            yield sample("unfold_copy.default", x, dim, size, step)
            yield sample("unfold_backward.default", torch.randn_like(u), [7, 7], dim, size, step)
    yield sample("unfold.default", values(), 0, 1, 1)
    for pad in ([1, 2], [0, 0], [-1, 2], [1, 2, 3, 0], [-2, -1, -1, 0], [0, 1, 0, 0, 2, 0], []):
        for value in (0, 0.0, 2.5, -1, float("-inf")):
            yield sample("constant_pad_nd.default", values(2, 3, 5), pad, value)
    yield sample("constant_pad_nd.default", values(2, 3, dtype=torch.int64), [1, 1], 7)
    yield sample("constant_pad_nd.default", values(0, 3), [0, 0, 1, 1], 3.0)


def constants():
    for dtype in (*DTYPES, torch.float16):
        for shape in ([], [0], [2, 3]):
            yield sample("zeros.default", shape, dtype=dtype)
            yield sample("ones.default", shape, dtype=dtype)
            yield sample("full.default", shape, 3, dtype=dtype)
            yield sample("full.default", shape, 2.5, dtype=dtype)
            yield sample("new_zeros.default", values(2), shape, dtype=dtype)
            yield sample("new_ones.default", values(2, dtype=dtype), shape)
            yield sample("new_full.default", values(2, dtype=dtype), shape, 1)
        yield sample("scalar_tensor.default", 3, dtype=dtype)
        yield sample("scalar_tensor.default", 1.5, dtype=dtype)
        if dtype != torch.bool:
            yield sample("arange.default", 5, dtype=dtype)
            yield sample("arange.start", 2, 7, dtype=dtype)
            yield sample("arange.start_step", 7, 2, -2, dtype=dtype)
        if dtype.is_floating_point:
            yield sample("arange.start_step", 0.5, 3, 0.25, dtype=dtype)
            for steps in (0, 1, 2, 5, 8):
                yield sample("linspace.default", -1.5, 2, steps, dtype=dtype)
        yield sample("eye.default", 3, dtype=dtype)
        yield sample("eye.m", 2, 4, dtype=dtype)
    yield sample("arange.default", 0)
    yield sample("arange.default", 4.5)
    yield sample("arange.start", -1, 3)
    yield sample("full.default", [2], float("nan"))
    yield sample("full.default", [2], True)
    yield sample("scalar_tensor.default", float("-inf"))


def samples():
    yield from shapes()
    yield from windows()
    yield from constants()
