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


DOUBLES = {torch.float64, torch.complex128}
#: Units in the last place where nothing more exact is there to judge by: for results of doubles, and for random numbers and
#: what PyTorch does not compute in doubles, where eager's result, rounded as ours is, stands for the exact one.
UNJUDGED = {torch.float32: 12, torch.complex64: 12, torch.float64: 64, torch.complex128: 64}
#: Calls near the given one in which eager's error is looked for, where it is small in the given one.
NEAR = 8


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


def copied(tensor: torch.Tensor, wide: bool = False, near: torch.Generator | None = None) -> torch.Tensor:
    """A copy with memory of its own, laid out alike. ``near``: of floats some units in the last place away at random, and of
    the same integers in another order."""
    source = tensor.detach()
    dtype = _WIDE.get(tensor.dtype, tensor.dtype) if wide else tensor.dtype
    if source.layout != torch.strided or source.is_conj() or source.is_neg():
        twin = source.to(dtype) if dtype != source.dtype else source.clone()
    else:
        flat = torch.empty(0, dtype=source.dtype).set_(source.untyped_storage())
        if near is not None and flat.is_floating_point():
            units = torch.randint(-NEAR, NEAR + 1, flat.shape, generator=near)
            flat = (flat.double() * (1 + units * torch.finfo(flat.dtype).eps)).to(flat.dtype)
        elif near is not None and not flat.is_complex():
            flat = flat[torch.randperm(len(flat), generator=near)]
        flat = flat.to(dtype, copy=True)
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
    elementwise: bool

    @classmethod
    def of(cls, call: Call, inputs: list[torch.Tensor], seed: int, elementwise: bool = False) -> Expected:
        """``elementwise``: each value is of one value of each input, and has an error of its own."""
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
        return cls(call, seed, eager, exact, random, inputs, elementwise)

    def judge(self, got: Step, values: bool = True) -> None:
        """Raises :class:`Wrong` unless ``got`` is as good as eager."""
        exact = self.exact
        groups = [
            ("output", got.outputs, self.eager.outputs, exact and exact.outputs),
            ("gradient", got.grads, self.eager.grads, exact and exact.grads),
            ("input afterwards", got.inputs, self.eager.inputs, exact and exact.inputs),
        ]
        for group, (kind, ours, theirs, truth) in enumerate(groups):
            if len(ours) != len(theirs):
                raise Wrong(f"{len(ours)} {kind}s, eager has {len(theirs)}")
            for i, (g, e) in enumerate(zip(ours, theirs, strict=True)):
                if kind == "output" and g.dtype != e.dtype and g.dtype == self.promised()[i].dtype:
                    e = e.to(g.dtype)
                known = truth[i] if truth and not self.random else None
                # a gradient of another shape is a sum over what was broadcast
                each = self.elementwise and g is not None and g.shape == self.eager.outputs[0].shape
                near = functools.partial(self.near, group, i)
                compare(f"{kind} {i}", g, e, known, values, near, each)
        for i, (g, e) in enumerate(zip(got.outputs, self.eager.outputs, strict=True)):
            if not _overlaps(e) and _layout(g) != _layout(e) and _layout(g) != _layout(self.promised()[i]):
                raise Wrong(f"output {i}: strides {_layout(g)}, eager has {_layout(e)}")

    def near(self, group: int, i: int) -> list[tuple[torch.Tensor | None, torch.Tensor | None]]:
        """What eager and double precision give for inputs near the given ones."""
        pairs = [tuple((s.outputs, s.grads, s.inputs)[group][i] for s in steps) for steps in self._near]
        return [(e, r) for e, r in pairs if e is not None and r is not None and r.dtype in DOUBLES]

    @functools.cached_property
    def _near(self) -> list[tuple[Step, Step]]:
        found = []
        for k in range(NEAR):
            generator = torch.Generator().manual_seed(k)
            # no other order where each value has an error of its own
            still = [self.elementwise and not x.is_floating_point() for x in self.given]
            inputs = [copied(x, near=None if s else generator) for x, s in zip(self.given, still, strict=True)]
            with contextlib.suppress(Exception):  # a call may refuse such inputs, as where they have to be symmetric
                eager = train(self.call, [copied(x) for x in inputs], self.seed)
                with _double_by_default():
                    exact = train(self.call, [copied(x, wide=True) for x in inputs], self.seed)
                found.append((eager, exact))
        return found

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
    values: bool = True,
    near: Callable[[], list[tuple[torch.Tensor, torch.Tensor]]] = list,
    each: bool = False,
) -> None:
    """Type, places of NaN and infinity, and the contract: ``error <= 2 eager's + 1 unit in the last place``.

    The error is the largest of the result, the unit that of its largest value: what a sum of several products loses is of
    their size and not its own. With ``each`` every value has an error and a unit of its own.
    Eager's error is that of this call. Where it is too small, as eager is exact by luck now and then, it is the largest
    in ``near`` calls, each measured against double precision on its own inputs.
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
    g, e = _parts(got), _parts(eager)
    wide = exact is not None and exact.dtype in DOUBLES and exact.shape == got.shape
    r = _parts(exact) if wide else None
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
    judged = r is not None and got.dtype not in DOUBLES
    r = e if r is None else r[~odd]
    error, own = (g - r).abs(), (e - r).abs()
    unit = _unit(r, got.dtype) * (1 if judged else UNJUDGED.get(got.dtype, 3))
    if not each:
        error, own, unit = error.max(), own.max(), unit.max()
    if (error > 2 * own + unit).any():
        for other, truth in near():
            if other.shape == truth.shape == got.shape:
                off = (_parts(other) - _parts(truth)).abs()[~odd].nan_to_num(0, 0, 0)
                own = torch.maximum(own, off if each else off.max())
    beyond = error - (2 * own + unit)
    worst = beyond.argmax()
    if beyond.flatten()[worst] > 0:
        error, own, unit = (float(x.flatten()[worst]) for x in (error, own, unit))
        raise Wrong(f"{name}: error {error:.3g}, allowed {2 * own + unit:.3g} (eager's {own:.3g}, unit {unit:.3g})")


def _unit(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The unit in the last place of each value."""
    info = torch.finfo(dtype)
    return info.eps * torch.exp2(exact.abs().clamp(info.tiny, info.max).log2().floor())


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
