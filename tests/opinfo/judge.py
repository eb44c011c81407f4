"""Runs one call eagerly, in double precision and compiled, and says whether the compiled one is as good as eager."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

#: Operators whose results hold whatever was in memory: only their type is compared.
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_"}
UNINITIALISED |= {"resize_as_"}

Call = Callable[..., list[torch.Tensor]]


#: Units of the last place of the largest value that a result may be off beside twice eager's own error. Samples are small
#: and often composites of several operators, so eager is exact by luck now and then. A double has nothing to be judged by.
FLOOR = {torch.float32: 4, torch.complex64: 4, torch.float64: 64, torch.complex128: 64}


class Wrong(AssertionError):
    """A result that is not what eager gives."""


@dataclasses.dataclass
class Step:
    """What one call left behind."""

    outputs: list[torch.Tensor]
    grads: list[torch.Tensor | None]
    inputs: list[torch.Tensor]


def call_of(op: Callable[..., Any], sample: Any) -> tuple[Call, list[torch.Tensor]]:
    """The sample as a function of its tensors alone, which returns the tensors of the result; and those tensors."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = [_widened(leaf) if torch.get_default_dtype() == torch.float64 else leaf for leaf in leaves]
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, rest, named = pytree.tree_unflatten(given, spec)
        result = sample.output_process_fn_grad(op(first, *rest, **named))
        return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]

    return call, [leaves[i] for i in places]


_WIDE = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64}
_WIDE |= {torch.complex64: torch.complex128}


def _widened(leaf: Any) -> Any:
    return _WIDE.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf


def copied(tensor: torch.Tensor, wide: bool = False) -> torch.Tensor:
    """A copy with memory of its own, laid out alike."""
    source = tensor.detach()
    dtype = _WIDE.get(tensor.dtype, tensor.dtype) if wide else tensor.dtype
    if source.layout != torch.strided or source.is_conj() or source.is_neg():
        twin = source.to(dtype) if dtype != source.dtype else source.clone()
    else:
        flat = torch.empty(0, dtype=source.dtype).set_(source.untyped_storage()).to(dtype, copy=True)
        twin = flat.as_strided(source.shape, source.stride(), source.storage_offset())
        twin = torch.empty(0, dtype=dtype).set_(
            flat.untyped_storage(), source.storage_offset(), source.shape, twin.stride()
        )
    return twin.requires_grad_(tensor.requires_grad)


def train(call: Call, inputs: list[torch.Tensor], seed: int) -> Step:
    """Calls, and runs backward from all results with fixed tangents."""
    torch.manual_seed(seed)
    outputs = list(call(*inputs))
    roots = [y for y in outputs if y.requires_grad]
    leaves = [x for x in inputs if x.requires_grad]
    grads: list[torch.Tensor | None] = []
    if roots and leaves:
        tangents = [_tangent(i, y) for i, y in enumerate(roots)]
        grads = list(torch.autograd.grad(roots, leaves, tangents, allow_unused=True))
    return Step([y.detach() for y in outputs], grads, [x.detach() for x in inputs])


def _tangent(i: int, like: torch.Tensor) -> torch.Tensor:
    """Multiples of 1/64 in (-2, 2), which every float dtype holds exactly."""
    generator = torch.Generator().manual_seed(i)
    return torch.randint(-127, 128, like.shape, generator=generator).to(like.dtype) / 64


@contextlib.contextmanager
def _double_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclasses.dataclass
class Expected:
    """What eager gives, and what it gives in double precision where it can."""

    call: Call
    seed: int
    eager: Step
    exact: Step | None
    random: bool
    given: list[torch.Tensor]

    @classmethod
    def of(cls, call: Call, inputs: list[torch.Tensor], seed: int) -> Expected:
        eager = train(call, [copied(x) for x in inputs], seed)
        again = train(call, [copied(x) for x in inputs], seed + 1)
        try:
            with _double_by_default():
                exact = train(call, [copied(x, wide=True) for x in inputs], seed)
        except Exception:  # noqa: BLE001 - not every operator takes doubles; eager alone is the measure then
            exact = None
        if exact is not None and [y.shape for y in exact.outputs] != [y.shape for y in eager.outputs]:
            exact = None
        random = any(not _same(a, b) for a, b in zip(eager.outputs, again.outputs, strict=True))
        return cls(call, seed, eager, exact, random, inputs)

    def judge(self, got: Step, values: bool = True) -> None:
        """Raises :class:`Wrong` unless ``got`` is as good as eager."""
        exact = self.exact
        groups = [
            ("output", got.outputs, self.eager.outputs, exact and exact.outputs),
            ("gradient", got.grads, self.eager.grads, exact and exact.grads),
            ("input afterwards", got.inputs, self.eager.inputs, exact and exact.inputs),
        ]
        sizes = [_largest(x) for x in [*(exact or self.eager).outputs, *(exact or self.eager).grads]]
        scale = max(sizes, default=0.0)
        for group, (kind, ours, theirs, truth) in enumerate(groups):
            if len(ours) != len(theirs):
                raise Wrong(f"{len(ours)} {kind}s, eager has {len(theirs)}")
            for i, (g, e) in enumerate(zip(ours, theirs, strict=True)):
                if kind == "output" and g.dtype != e.dtype and g.dtype == self.promised()[i].dtype:
                    e = e.to(g.dtype)
                known = truth[i] if truth and not self.random else None
                moved = functools.partial(self.moved, group, i)
                compare(f"{kind} {i}", g, e, known, scale, values, moved)
        for i, (g, e) in enumerate(zip(got.outputs, self.eager.outputs, strict=True)):
            if not _overlaps(e) and _layout(g) != _layout(e) and _layout(g) != _layout(self.promised()[i]):
                raise Wrong(f"output {i}: strides {_layout(g)}, eager has {_layout(e)}")

    def moved(self, group: int, i: int) -> torch.Tensor | None:
        """A result in double precision of inputs that differ from the given ones by half a unit in the last place."""
        torch.manual_seed(self.seed)

        def nudged(x: torch.Tensor) -> torch.Tensor:
            wide = copied(x, wide=True)
            if x.is_floating_point():
                sign = torch.randint(0, 2, x.shape).double() * 2 - 1
                wide = (wide.detach() * (1 + sign * torch.finfo(x.dtype).eps / 2)).requires_grad_(x.requires_grad)
            return wide

        with _double_by_default():
            step = train(self.call, [nudged(x) for x in self.given], self.seed)
        return (step.outputs, step.grads, step.inputs)[group][i]

    def promised(self) -> list[torch.Tensor]:
        """The outputs as tracing sees them. A few of PyTorch's shape functions differ from its kernels; code after a
        compiled graph was traced with what they say, so that is right as well."""
        with FakeTensorMode() as mode:
            return self.call(*[mode.from_tensor(x) for x in self.eager.inputs])


def compare(
    name: str,
    got: torch.Tensor | None,
    eager: torch.Tensor | None,
    exact: torch.Tensor | None,
    scale: float,
    values: bool = True,
    moved: Callable[[], torch.Tensor | None] | None = None,
) -> None:
    """Type, places of NaN and infinity, and ``|got - exact| <= 2 max|eager - exact| + FLOOR eps max|exact|``.

    What vanishes but for rounding, as the gradient along a direction that was normalised away, is nothing but rounding
    errors of larger values: it may have four times eager's, and ``scale``, the largest value of all, stands for its size.
    Where a last place of the inputs changes the result more than that (``moved``: sums that cancel), eager may be exact by
    luck, and the result need not be nearer than such a change.
    """
    if got is None or eager is None:
        rest = got if eager is None else eager
        if rest is not None and rest.count_nonzero():
            raise Wrong(f"{name}: is None in {'eager' if eager is None else 'compiled'} only")
        return
    for what in ("dtype", "shape", "layout"):
        if getattr(got, what) != getattr(eager, what):
            raise Wrong(f"{name}: {what} {getattr(got, what)}, eager has {getattr(eager, what)}")
    if not values or not got.numel() or _same(got, eager):
        return
    if not (got.is_floating_point() or got.is_complex()):
        bad = (got != eager).to_dense()
        raise Wrong(f"{name}: {got[bad][:3].tolist()}, eager has {eager[bad][:3].tolist()} ({int(bad.sum())} differ)")
    eps = torch.finfo(got.dtype).eps * FLOOR.get(got.dtype, 1)
    g, e = _parts(got), _parts(eager)
    r = None if exact is None or exact.shape != got.shape else _parts(exact)
    odd = ~(e.isfinite() & g.isfinite())
    bad = odd & ~((g == e) | (g.isnan() & e.isnan()))
    if r is not None:  # where eager overflows and the double does not, its value is the better one
        bad &= ~((g == r) | (g.isnan() & r.isnan()))
        odd |= ~r.isfinite()
    if bad.any():
        raise Wrong(f"{name}: {g[bad][:3].tolist()} where eager has {e[bad][:3].tolist()}")
    g, e = g[~odd], e[~odd]
    if not g.numel():
        return
    if r is None:
        own, error, largest = eps * float(e.abs().max()), float((g - e).abs().max()), float(e.abs().max())
    else:
        r = r[~odd]
        own, error, largest = float((e - r).abs().max()), float((g - r).abs().max()), float(r.abs().max())
    vanishes = largest <= 1e-6 * scale and own > 0
    if vanishes:
        largest = scale
    if r is not None and moved is not None and error > 2 * own + eps * largest:
        change = moved()
        if change is not None and change.shape == got.shape:
            own = max(own, float((_parts(change)[~odd] - r).abs().nan_to_num(0, 0, 0).max()))
    limit = (4 if vanishes else 2) * own + eps * largest + torch.finfo(got.dtype).tiny
    if error > limit:
        raise Wrong(f"{name}: error {error:.3g}, allowed {limit:.3g} (eager's {own:.3g}, values up to {largest:.3g})")


def _largest(x: torch.Tensor | None) -> float:
    if x is None or not x.numel() or not (x.is_floating_point() or x.is_complex()):
        return 0.0
    return float(_parts(x).nan_to_num(0, 0, 0).abs().max())


def _parts(x: torch.Tensor) -> torch.Tensor:
    """Doubles; real and imaginary parts side by side."""
    x = x.detach().to_dense().resolve_conj()
    return (torch.view_as_real(x) if x.is_complex() else x).double()


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.allclose(a.to_dense(), b.to_dense(), rtol=0, atol=0, equal_nan=True)


def _overlaps(x: torch.Tensor) -> bool:
    """Whether elements share memory other than by a stride of 0: what only ``empty_strided`` and the like return."""
    if x.layout != torch.strided:
        return False
    reach = 1
    for stride, size in sorted((stride, size) for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1):
        if 0 < stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def _layout(x: torch.Tensor) -> list[int]:
    """The strides that matter."""
    if x.layout != torch.strided or not x.numel():
        return []
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]
