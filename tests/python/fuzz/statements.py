"""The kinds of statement of a random program, each with its weight."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .programs import Generator

SMOOTH = ["sin", "cos", "tanh", "sigmoid", "neg", "square", "erf", "atan", "expm1", "sinh", "relu", "abs", "exp"]
POSITIVE = ["log", "sqrt", "rsqrt", "reciprocal", "log1p", "log2", "lgamma"]
FUNCTIONAL = ["gelu", "silu", "softplus", "elu", "leaky_relu", "mish", "hardswish", "logsigmoid", "selu", "softsign"]


def unary(g: Generator) -> None:
    x, kind = g.any(), g.random.random()
    if kind < 0.5:
        g.define(f"{x}.{g.random.choice(SMOOTH)}()")
    elif kind < 0.65:
        g.define(f"({x}.abs() + 0.5).{g.random.choice(POSITIVE)}()")
    elif kind < 0.85:
        g.define(f"F.{g.random.choice(FUNCTIONAL)}({x})")
    else:
        g.define(f"{x}.clamp({g.random.choice(['-0.7, 0.9', 'min=-0.3', 'max=0.4'])})")


def binary(g: Generator) -> None:
    x = g.any()
    y = g.like(x)
    x, y = (y, x) if g.chance(0.3) else (x, y)
    g.define(
        g.random.choice(
            [
                f"{x} + {y}",
                f"{x} - {y}",
                f"{x} * {y}",
                f"{x} / ({y}.abs() + 0.5)",
                f"{x} * 0.5 + {y}",
                f"torch.maximum({x}, {y})",
                f"torch.minimum({x}, {y})",
                f"torch.hypot({x}, {y} + 3)",
                f"torch.lerp({x}, {y}, 0.3)",
                f"torch.addcmul({x}, {y}, {x}, value=0.5)",
                f"({x}.abs() + 0.5) ** ({y}.tanh())",
                f"torch.atan2({x}, {y}.abs() + 0.5)",
            ]
        )
    )


def where(g: Generator) -> None:
    x = g.any()
    y, m = g.like(x), g.mask(tuple(g.values[x].shape))
    g.define(g.random.choice([f"torch.where({m}, {x}, {y})", f"{x}.masked_fill({m}, -0.5)", f"{x} * {m}"]))


def cast(g: Generator) -> None:
    x = g.any()
    g.define(f"{x}.to({g.random.choice(['f32', 'f32', 'bf16', 'f64'])})")


# --- views ------------------------------------------------------------------------------------


def view_of(g: Generator, x: str) -> str:
    """The text of a view of ``x``."""
    t = g.values[x]
    shape, rank = list(t.shape), t.ndim
    d = g.random.randrange(rank) if rank else 0
    kinds = ["expand", "unsqueeze", "flatten", "repeat_view"]
    if rank:
        kinds += ["slice", "slice", "slice", "select", "narrow", "permute", "transpose", "chunk", "unfold", "unbind"]
        kinds += ["split", "unflatten", "view", "expand"]
    if rank > 1:
        kinds += ["diagonal", "squeeze", "movedim", "view"]
    kind = g.random.choice(kinds)
    if kind in ("slice", "narrow", "select") and not shape[d]:
        kind = "flatten"
    if kind == "expand":
        return f"{x}.expand({', '.join(map(str, [g.size(), *(g.size() if n == 1 else n for n in shape)]))})"
    if kind == "unsqueeze":
        return f"{x}.unsqueeze({g.random.randint(-rank - 1, rank)})"
    if kind == "flatten":
        return f"{x}.flatten({g.random.randint(0, max(rank - 1, 0))})"
    if kind == "repeat_view":
        return f"{x}.unsqueeze(-1).expand(*{x}.shape, {g.size()}).reshape(-1)"
    if kind == "slice":
        start, step = g.random.randrange(shape[d]), g.random.choice([1, 1, 2, 3])
        end = g.random.choice(["", str(g.random.randint(start, shape[d])), "-1"])
        return f"{x}[{':, ' * d}{start}:{end}{':' + str(step) if step > 1 else ''}]"
    if kind == "select":
        return f"{x}[{':, ' * d}{g.random.randrange(-shape[d], shape[d])}]"
    if kind == "narrow":
        start = g.random.randrange(shape[d])
        return f"{x}.narrow({d}, {start}, {g.random.randint(1, shape[d] - start)})"
    if kind == "permute":
        return f"{x}.permute({', '.join(map(str, g.random.sample(range(rank), rank)))})"
    if kind == "transpose":
        return f"{x}.transpose({d}, {g.random.randrange(rank)})"
    if kind == "chunk":
        return f"{x}.chunk({g.random.choice([2, 3])}, {d})[{g.random.choice([0, -1])}]"
    if kind == "split":
        return f"{x}.split({g.random.choice([1, 2, 3])}, {d})[{g.random.choice([0, -1])}]"
    if kind == "unbind":
        return f"{x}.unbind({d})[{g.random.choice([0, -1])}]"
    if kind == "unfold":
        return f"{x}.unfold({d}, {g.random.choice([1, 2, 3])}, {g.random.choice([1, 2])})"
    if kind == "unflatten":
        return f"{x}.unflatten({d}, (-1, {g.random.choice([n for n in range(1, 4) if shape[d] % n == 0] or [1])}))"
    if kind == "view":
        return f"{x}.{g.random.choice(['view', 'reshape'])}({shape[0]}, -1)"
    if kind == "diagonal":
        a, b = g.random.sample(range(rank), 2)
        return f"{x}.diagonal({g.random.choice([0, 0, 1, -1])}, {a}, {b})"
    if kind == "squeeze":
        return f"{x}.squeeze()"
    return f"{x}.movedim({d}, {g.random.randrange(rank)})"


def view(g: Generator) -> None:
    x = g.any()
    for _ in range(g.random.choice([1, 1, 2, 3])):
        x = g.define(view_of(g, x)) or x


def rearrange(g: Generator) -> None:
    x = g.any()
    rank = g.values[x].ndim
    d = g.random.randrange(rank) if rank else 0
    kinds = [f"{x}.clone()", f"{x}.contiguous()", f"{x}.detach()", f"{x}.tile(2)", f"torch.stack([{x}, {g.like(x)}])"]
    if rank:
        same = g.any(lambda t: t.ndim == rank) or x
        kinds += [
            f"torch.cat([{x}, {same}], {d})",
            f"torch.cat([{same}, {x}, {x}], {d})",
            f"{x}.flip({d})",
            f"{x}.roll({g.random.choice([1, -1, 2])}, {d})",
            f"{x}.repeat_interleave(2, {d})",
            f"F.pad({x}, ({g.random.choice(['1, 0', '0, 2', '-1, 1', '1, 1', '-1, 0'])}))",
            f"F.pad({x}, (1, 2), value=0.5)",
        ]
    if rank > 1:
        kinds += [f"{x}.tril()", f"{x}.triu(1)", f"F.pad({x}, (1, 0, 0, 1))", f"{x}.rot90()", f"{x}.mT.contiguous()"]
    g.define(g.random.choice(kinds))


# --- reductions -------------------------------------------------------------------------------


def reduce(g: Generator) -> None:
    x = g.any(lambda t: t.numel() > 0)
    if x is None:
        return
    rank = g.values[x].ndim
    dims = g.random.sample(range(rank), g.random.randint(1, rank)) if rank else []
    dim = dims[0] if dims else 0
    keep = g.random.choice(["", ", keepdim=True"])
    if not rank or g.chance(0.15):
        g.define(f"{x}.{g.random.choice(['sum', 'mean', 'amax', 'prod', 'max', 'norm'])}()")
        return
    g.define(
        g.random.choice(
            [
                f"{x}.sum({dims}{keep})",
                f"{x}.sum({dims}{keep})",
                f"{x}.mean({dims}{keep})",
                f"{x}.amax({dims}{keep})",
                f"{x}.amin({dims}{keep})",
                f"{x}.var({dims}, correction=0{keep})" if varies(g, x, dims) else f"{x}.mean({dims}{keep})",
                f"({x} + 3).norm(dim={dims}{keep})",
                f"{x}.logsumexp({dims}{keep})",
                f"{x}.prod({dim}{keep})",
                f"{x}.max({dim}{keep}).values",
                f"{x}.softmax({dim})",
                f"{x}.log_softmax({dim})",
                f"{x}.cumsum({dim})",
                f"{x}.sort({dim}).values",
                normalised(g, x, dim),
                f"F.normalize({x} + 2, dim={dim})",
                f"{x}.sum_to_size({x}.shape[-1])",
            ]
        )
    )


def normalised(g: Generator, x: str, dim: int) -> str:
    """Layer norm, where rows vary: otherwise its gradient is rounding errors over rounding errors."""
    rows = list(range(dim, g.values[x].ndim))
    return f"F.layer_norm({x}, {x}.shape[{dim}:], eps=0.01)" if varies(g, x, rows) else f"{x}.mean({dim})"


def varies(g: Generator, x: str, dims: list[int]) -> bool:
    """Whether no variance over the dims is near 0, where nothing but rounding errors is left of it."""
    return bool((g.values[x].detach().double().var(dims, correction=0) > 0.05).all())


# --- products ---------------------------------------------------------------------------------


def matmul(g: Generator) -> None:
    """One to four dims on either side; batches broadcast."""
    x = g.any(lambda t: 1 <= t.ndim <= 4)
    if x is None:
        return
    shape = g.values[x].shape
    n = shape[-1]
    fitting = [
        name
        for name, t in g.values.items()
        if t.is_floating_point() and t.ndim and t.dtype == g.values[x].dtype and t.shape[max(t.ndim - 2, 0)] == n
    ]
    if fitting and g.chance(0.5):
        y = g.random.choice(fitting)
    else:
        batch = [1 if g.chance(0.4) else size for size in shape[:-2]]
        batch = batch[g.random.randint(0, len(batch)) :] if g.chance(0.5) else batch
        batch = [g.size(), *batch] if g.chance(0.15) and len(batch) == max(len(shape) - 2, 0) < 2 else batch
        new = (n,) if g.chance(0.2) else (*batch, n, g.size())
        layout = g.random.choice(["dense", "transposed", "expanded", "spaced"])
        y = g.leaf(new, dtype=g.dtype(x), layout=layout, grad=g.chance(0.8))
    kinds = [f"{x} @ {y}"] * 5
    if g.values[x].ndim == 3 == g.values[y].ndim:
        kinds += [f"torch.bmm({x}, {y})", f"torch.einsum('bij,bjk->ikb', {x}, {y})"]
    if g.values[y].ndim == 2:
        kinds += [f"F.linear({x}, {y}.t())", f"F.linear({x}, {y}.t(), {y}[0])"]
    if g.values[x].ndim == 2 == g.values[y].ndim:
        kinds += [f"torch.addmm({x}[:, :1], {x}, {y}, beta=0.5)", f"torch.einsum('ij,jk->ki', {x}, {y})"]
    if g.values[x].ndim == 1:
        kinds += [f"torch.outer({x}, {x})", f"torch.dot({x}, {x})"]
    scale = 1 / math.sqrt(max(n, 1))
    made = g.define(g.random.choice(kinds))
    if made and g.chance(0.3):
        g.define(f"{made} * {scale:.3f}")


# --- indices ----------------------------------------------------------------------------------


def gather(g: Generator) -> None:
    x = g.any(lambda t: t.ndim > 0 and 0 not in t.shape)
    if x is None:
        return
    shape = tuple(g.values[x].shape)
    d = g.random.randrange(len(shape))
    many = g.index(shape[d], (g.size(),))
    kinds = [f"{x}.index_select({d}, {many})", f"{x}[{':, ' * d}{many}]"]
    if g.chance(0.4):
        to = list(shape)
        to[d] = g.size()
        kinds = [f"{x}.gather({d}, {g.index(shape[d], tuple(to))})"]
    elif g.chance(0.3):
        kinds = [f"{x}[{':, ' * d}{g.index(shape[d], (2, g.size()))}]"]
    elif len(shape) > 1 and g.chance(0.5):
        other = g.index(shape[1], tuple(g.values[many].shape) if g.chance(0.6) else (2, 1))
        first = g.index(shape[0], tuple(g.values[many].shape))
        kinds = [f"{x}[{first}, {other}]", f"{x}[{first}, :, ..., {g.index(shape[-1], (1,))}]"]
    elif len(shape) == 2 and g.chance(0.4):
        kinds = [f"F.embedding({g.index(shape[0], (2, g.size()))}, {x})"]
    g.define(g.random.choice(kinds))


def scatter(g: Generator) -> None:
    """Out of place: adding at indices, and overwriting at places that differ."""
    x = g.any(lambda t: t.ndim > 0 and 0 not in t.shape)
    if x is None:
        return
    t = g.values[x]
    shape = tuple(t.shape)
    d = g.random.randrange(len(shape))
    part = list(shape)
    part[d] = g.size()
    src = g.leaf(tuple(part), dtype=g.dtype(x), grad=True)
    many = g.index(shape[d], (part[d],))
    same = g.index(shape[d], tuple(part))
    one = list(shape)
    del one[d]
    g.define(
        g.random.choice(
            [
                f"{x}.index_add({d}, {many}, {src})",
                f"{x}.index_add({d}, {many}, {src}, alpha=0.5)",
                f"{x}.scatter_add({d}, {same}, {src})",
                f"torch.zeros_like({x}).scatter_add({d}, {same}, {src})",
                f"{x}.scatter({d}, {same}, 0.25)",
                f"{x}.index_fill({d}, {many}, 0.5)",
                f"{x}.scatter_reduce({d}, {same}, {src}, 'sum', include_self=False)",
                f"{x}.scatter_reduce({d}, {same}, {src}, 'amax')",
                f"{x}.index_copy({d}, {many}.sort().values[:1], {src}.narrow({d}, 0, 1))",
                f"{x}.select_scatter({src}.select({d}, 0), {d}, {g.random.randrange(shape[d])})",
                f"{x}.slice_scatter({src}.narrow({d}, 0, 1), {d}, 0, 1)",
                f"torch.zeros({shape}, dtype={g.dtype(x)}).index_put(({g.index(shape[0], (3,))},), "
                f"{x}[:1].expand(3, *{shape[1:]}), accumulate=True)",
                f"{x}.index_put(({g.index(shape[0], (3,))},), {x}[0] * 0.5, accumulate=True)",
                f"{x}.masked_fill({g.mask(shape[-1:])}, 0.0)",
            ]
        )
    )


# --- writes -----------------------------------------------------------------------------------


def write(g: Generator) -> None:
    """A history of writes: a fresh value, views of it, writes through either, and reads in between."""
    x = g.any(lambda t: 0 not in t.shape)
    if x is None:
        return
    start = g.random.choice([f"{x}.clone()", f"{x} * 0.5", f"torch.zeros_like({x})", f"{x} + 1", f"{x}.clone()"])
    # Now and then an argument, as buffers are written.
    base = g.leaf(tuple(g.values[x].shape), dtype=g.dtype(x)) if g.chance(0.15) else g.define(start)
    if base is None:
        return
    through = base
    for _ in range(g.random.choice([0, 1, 1, 2])):
        through = g.define(view_of(g, through)) or through
    for _ in range(g.random.randint(1, 3)):
        target = g.random.choice([through, through, base])
        if not g.values[target].numel():
            continue
        write_once(g, target)
        if g.chance(0.3):
            g.define(f"{g.random.choice([base, through])}.{g.random.choice(['sin', 'tanh', 'square'])}()")
    # What was written is read through the other name.
    g.define(f"{base} * 1.5" if g.chance(0.5) else f"{base}.sin() + {base}")


def write_once(g: Generator, target: str) -> None:
    shape = tuple(g.values[target].shape)
    y = g.like(target)
    kinds = [
        f"{target}.mul_(0.5)",
        f"{target}.mul_({y}.tanh())",
        f"{target}.add_({y}, alpha=0.5)",
        f"{target}.sub_({y})",
        f"{target}.copy_({y})",
        f"{target}.zero_()",
        f"{target}.fill_(0.75)",
        f"{target}.tanh_()",
        f"{target}.sigmoid_()",
        f"{target}.clamp_(-1, 1)",
        f"{target}.div_(2)",
        f"{target}.masked_fill_({g.mask(shape)}, 0.25)",
        f"{target}.addcmul_({y}, {y}, value=0.1)",
        f"{target}[...] = {y}",
    ]
    if shape:
        d = g.random.randrange(len(shape))
        i = g.random.randrange(shape[d])
        head = ":, " * d
        part = [n for k, n in enumerate(shape) if k != d]
        value = g.leaf(tuple(part), dtype=g.dtype(target), grad=True)
        many = g.index(shape[0], (3,))
        kinds += [
            f"{target}[{head}{i}] = {value}",
            f"{target}[{head}{i}] += {value}",
            f"{target}[{head}{i}].mul_(2)",
            f"{target}[{head}{i}:] *= 0.5",
            f"{target}[{head}{i}:].add_(1)",
            f"{target}[{many}] = 0.5",
            f"{target}[{g.mask(shape)}] = 0.0",
            f"{target}.index_put_(({many},), {target}[0].detach(), accumulate=True)",
            f"{target}.index_add_({d}, {g.index(shape[d], (1,))}, {value}.unsqueeze({d}))",
            f"{target}.scatter_add_({d}, {g.index(shape[d], shape)}, {y}.expand({shape}))",
            f"{target}.index_fill_({d}, {g.index(shape[d], (2,))}, -0.5)",
        ]
    g.change(g.random.choice(kinds))


def loss(g: Generator) -> None:
    x = g.any(lambda t: t.ndim == 2 and 0 not in t.shape)
    if x is None:
        return
    rows, classes = g.values[x].shape
    y = g.like(x)
    labels = g.index(classes, (rows,))
    g.define(
        g.random.choice(
            [
                f"F.cross_entropy({x}, {labels})",
                f"F.cross_entropy({x}, {labels}, reduction='none', label_smoothing=0.1)",
                f"F.nll_loss({x}.log_softmax(1), {labels}, reduction='sum')",
                f"F.mse_loss({x}, {y}.expand_as({x}))",
                f"F.smooth_l1_loss({x}, {y}.expand_as({x}))",
                f"F.binary_cross_entropy_with_logits({x}, {g.mask((rows, classes))}.to({x}.dtype))",
                f"F.kl_div({x}.log_softmax(1), {y}.expand_as({x}).softmax(1), reduction='batchmean')",
                f"F.huber_loss({x}, {y}.expand_as({x}), reduction='none')",
            ]
        )
    )


STATEMENTS = [
    (unary, 14),
    (binary, 14),
    (where, 5),
    (cast, 3),
    (view, 20),
    (rearrange, 10),
    (reduce, 14),
    (matmul, 14),
    (gather, 8),
    (scatter, 10),
    (write, 14),
    (loss, 3),
]
