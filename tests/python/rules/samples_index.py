"""Sample arguments of indexing operators and their gradients."""

import torch

from .sample import FLOATS, sample

DTYPES = [*FLOATS, torch.int64, torch.bool]
SUMMED = [*FLOATS, torch.int64, torch.int32]


def values(*shape, dtype=torch.float32):
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    if not dtype.is_floating_point:
        return torch.randint(-20, 50, shape).to(dtype)
    return torch.randn(shape).to(dtype)


def index(*shape, below, above=0, dtype=torch.int64):
    return torch.randint(above, below, shape).to(dtype)


def gathers():
    for dtype in DTYPES:
        x = values(4, 5, 3, dtype=dtype)
        for kind in (torch.int64, torch.int32):
            yield sample("index_select.default", x, 1, index(7, below=5, dtype=kind))
        yield sample("index_select.default", x, -1, index(2, below=3))
        yield sample("index_select.default", x, 0, torch.tensor(2))
        yield sample("gather.default", x, 1, index(4, 6, 3, below=5))
        yield sample("gather.default", x, -1, index(2, 3, 5, below=3))
        yield sample("take.default", x, index(2, 3, below=60, above=-60))
        yield sample("take_along_dim.default", x, index(4, 2, 1, below=5), 1)
        yield sample("take_along_dim.default", x, index(9, below=60))
    scalar = values()
    yield sample("index_select.default", scalar, 0, torch.tensor([0]))
    yield sample("index_select.default", values(3), 0, torch.tensor([], dtype=torch.int64))
    yield sample("gather.default", scalar, 0, torch.tensor(0))
    yield sample("gather.default", values(3), 0, torch.tensor([0, 0, 2, 1]))
    yield sample("gather.default", values(3, 2), 0, torch.empty(0, 2, dtype=torch.int64))
    yield sample("take.default", scalar, torch.tensor([0, -1]))


def transposes():
    for dtype in SUMMED:
        x = values(4, 5, 3, dtype=dtype)
        yield sample("index_add.default", x, 1, index(7, below=5), values(4, 7, 3, dtype=dtype))
        yield sample(
            "index_add.default", x, 0, index(2, below=4, dtype=torch.int32), values(2, 5, 3, dtype=dtype), alpha=3
        )
        yield sample("scatter_add.default", x, 1, index(4, 7, 3, below=5), values(4, 7, 3, dtype=dtype))
        yield sample("scatter_add.default", x, 2, index(2, 3, 9, below=3), values(4, 5, 9, dtype=dtype))
        yield sample("index_select_backward.default", values(4, 7, 3, dtype=dtype), [4, 5, 3], 1, index(7, below=5))
        yield sample("gather_backward.default", values(4, 6, 3, dtype=dtype), x, 1, index(4, 6, 3, below=5), False)
        yield sample("put.default", x, index(2, 6, below=60, above=-60), values(2, 6, dtype=dtype), True)
        yield sample("put.default", torch.zeros_like(x), index(9, below=60), values(9, dtype=dtype), True)
    for dtype in DTYPES:
        x = values(4, 5, 3, dtype=dtype)
        yield sample("scatter.src", x, 1, index(4, 1, 3, below=5), values(4, 1, 3, dtype=dtype))
        yield sample("scatter.src", x, -1, index(4, 5, 1, below=3), values(4, 6, 2, dtype=dtype))
        yield sample("scatter.value", x, 0, index(1, 5, 3, below=4), 2)
    yield sample("scatter.src", values(), 0, torch.tensor(0), values())
    yield sample("scatter.value", values(3), -1, torch.tensor([2]), -1.5)
    yield sample("index_add.default", values(), 0, torch.tensor([0]), values())
    yield sample("index_add.default", values(3), 0, torch.tensor(1), values(1))
    yield sample("scatter_add.default", values(), 0, torch.tensor(0), values())
    yield sample("scatter_add.default", values(3), 0, torch.empty(0, dtype=torch.int64), values(3))
    yield sample("index_add.default", values(3, 2), 0, torch.empty(0, dtype=torch.int64), values(0, 2))


def index_lists():
    """Lists for a tensor of shape [4, 5, 3, 2]."""
    i = lambda n, *shape: index(*shape, below=n, above=-n)  # noqa: E731
    yield [i(4, 6)]
    yield [None, i(5, 6)]
    yield [None, None, None, i(2, 2, 3)]
    yield [i(4, 6), i(5, 6)]
    yield [i(4, 2, 1), i(5, 3)]
    yield [None, i(5, 6), i(3, 1)]
    yield [None, i(5, 2, 2), i(3, 2), None]
    yield [i(4, 6), None, i(3, 6)]
    yield [i(4, 2, 1), None, None, i(2, 3)]
    yield [None, i(5, 6), None, i(2, 6)]
    yield [i(4, 3), i(5, 3), i(3, 3), i(2, 3)]
    yield [torch.tensor(-1)]
    yield [i(4), i(5, 3)]
    yield [i(4, 0)]
    yield [i(4, 6).int(), i(5, 6).int()]


def advanced():
    for dtype in DTYPES:
        x = values(4, 5, 3, 2, dtype=dtype)
        for indices in index_lists():
            yield sample("index.Tensor", x, indices)
            yield sample("_unsafe_index.Tensor", x, indices)
    for dtype in SUMMED:
        x = values(4, 5, 3, 2, dtype=dtype)
        for indices in index_lists():
            to = torch.ops.aten.index(x, indices).shape
            for put in ("index_put", "_unsafe_index_put"):
                yield sample(f"{put}.default", x, indices, values(*to, dtype=dtype), True)
                yield sample(f"{put}.default", x, indices, values(dtype=dtype), True)
            yield sample("index_put.default", torch.zeros_like(x), indices, values(to[-1], dtype=dtype), True)
    for dtype in DTYPES:
        x = values(4, 5, dtype=dtype)
        yield sample("index_put.default", x, [values(4, 5, dtype=torch.bool)], values(dtype=dtype))
        yield sample("index_put.default", x, [values(4, dtype=torch.bool)], values(1, dtype=dtype))


def tables():
    for dtype in FLOATS:
        for kind in (torch.int64, torch.int32):
            for shape in ((), (6,), (2, 7), (0,)):
                i = index(*shape, below=5, dtype=kind)
                weight, grad = values(5, 3, dtype=dtype), values(*shape, 3, dtype=dtype)
                yield sample("embedding.default", weight, i)
                yield sample("embedding.default", weight, i, 2)
                for padding in (-1, 0, 3):
                    for scale in (False, True):
                        if shape != ():
                            yield sample("embedding_dense_backward.default", grad, i, 5, padding, scale)
                            yield sample("embedding_backward.default", grad, i, 5, padding, scale, False)
    yield sample("embedding.default", values(5, 3, dtype=torch.int64), index(4, below=5))
    for kind in (torch.int64,):
        yield sample("one_hot.default", index(2, 3, below=4, dtype=kind), 6)
        yield sample("one_hot.default", torch.tensor(1), 3)


def samples():
    yield from gathers()
    yield from transposes()
    yield from advanced()
    yield from tables()
