"""Runs a program eagerly, in double precision and compiled, and judges outputs, gradients and written arguments.

The compiled error may be twice eager's own, plus one unit in the last place of the largest value. Where one run says
otherwise, it may be luck: eager's error on one element can be 0. Then nearby arguments are run too, and the worst
errors are compared; where those are still of the size of roundings, those on a hundred others. There is nothing to hold double precision against: eager's error there is a single-precision run's,
scaled down, and counts twice, as the reference errs as much. A double made of floats is as good as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from permalloy.backend import backend
from torch._dynamo.backends.common import aot_autograd

from .programs import FRESH, Program, hash_of

MANY = 100  # trials with other arguments

Run = Callable[..., tuple[torch.Tensor, ...]]
#: Gives what one trial computes.
Compiled = Callable[[int], "Results"]
Results = dict[str, torch.Tensor | None]
#: Largest error of ours and of eager's, and a unit in the last place of the largest value.
Errors = tuple[float, float, float]


class Refused(Exception):
    """PyTorch itself does not run the program, or traces it to something else."""


class Wrong(Exception):
    """The compiled program fails, or gives something else."""


def check(program: Program, compile_with: Callable[[Program], Compiled]) -> None:
    """Raises :class:`Wrong` or :class:`Refused`."""
    try:
        theirs, truth = run(program), run(program, floats=torch.float64)
    except RuntimeError as e:
        raise Refused(str(e)) from e
    try:
        judge(program, theirs, truth, compile_with)
    except Wrong:
        try:
            judge(program, theirs, truth, traced)
        except Wrong as e:
            raise Refused(f"as PyTorch traces it: {e}") from e
        raise


def judge(program: Program, theirs: Results, truth: Results, compile_with: Callable[[Program], Compiled]) -> None:
    try:
        compiled = compile_with(program)
        mine = compiled(0)
    except Exception as e:
        raise Wrong(f"{type(e).__name__}: {e}") from e
    worst = {}
    for name in truth:
        found = compared(program, name, mine[name], theirs[name], truth[name])
        if found and not allowed(*found):
            worst[name] = [found]
    if not worst:
        return
    for trial in range(1, FRESH + MANY):
        if trial == FRESH and not any(rounding_decides(found) for found in worst.values()):
            break
        mine, theirs = compiled(trial), run(program, trial=trial)
        truth, single = (run(program, trial=trial, floats=f) for f in (torch.float64, torch.float32))
        for name, so_far in worst.items():
            so_far.append(errors(program, mine[name], theirs[name], truth[name], single[name]))
    for name, found in worst.items():
        ours, eagers, unit = largest(found)
        if not allowed(ours, eagers, unit):
            raise Wrong(f"{name} is off by {ours:.3e}; eager by {eagers:.3e}, a unit in the last place is {unit:.3e}")


def largest(found: list[Errors]) -> Errors:
    ours, eagers, unit = (max(column) for column in zip(*found, strict=True))
    return ours, eagers, unit


def rounding_decides(found: list[Errors]) -> bool:
    """Too large an error, but no larger than another order of sums can make it."""
    ours, eagers, unit = largest(found)
    return not allowed(ours, eagers, unit) and ours <= 8 * (eagers + unit)


def allowed(ours: float, eagers: float, unit: float) -> bool:
    return ours <= 2 * eagers + unit


class _Module(torch.nn.Module):
    def __init__(self, function: Run) -> None:
        super().__init__()
        self.forward = function


def through_aot(program: Program) -> Compiled:
    """The backend on what Dynamo would hand it."""
    function = backend(_Module(program.function()), program.arguments(), options={"check": True})
    return lambda trial: run(program, function, trial)


def through_dynamo(program: Program, dynamic: bool | None = None) -> Compiled:
    torch._dynamo.reset()
    function = torch.compile(program.function(), backend="permalloy", fullgraph=True, dynamic=dynamic)
    return lambda trial: run(program, function, trial)


def traced(program: Program) -> Compiled:
    """As PyTorch traces it, without a compiler."""
    function = aot_autograd(fw_compiler=lambda gm, _: gm)(_Module(program.function()), program.arguments())
    return lambda trial: run(program, function, trial)


def run(
    program: Program, function: Run | None = None, trial: int = 0, floats: torch.dtype | None = None
) -> dict[str, torch.Tensor | None]:
    """Outputs, gradients and arguments afterwards, by name."""
    arguments = program.arguments(trial, floats)
    outputs = (function or program.function(floats))(*arguments)
    results = dict(zip(program.outputs, outputs, strict=True))
    roots = [(n, o) for n, o in results.items() if o.requires_grad]
    wanted = [(leaf.name, a) for leaf, a in zip(program.leaves, arguments, strict=True) if leaf.grad]
    cotangents = [cotangent(program, n, o, trial) for n, o in roots]
    gradients = torch.autograd.grad([o for _, o in roots], [a for _, a in wanted], cotangents, allow_unused=True)
    found = {f"output {n}": o.detach() for n, o in results.items()}
    found.update({f"gradient of {n}": g for (n, _), g in zip(wanted, gradients, strict=True)})
    found.update({f"{leaf.name} afterwards": a.detach() for leaf, a in zip(program.leaves, arguments, strict=True)})
    return found


def cotangent(program: Program, name: str, output: torch.Tensor, trial: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(hash_of(program.seed, "cotangent", name, trial))
    # Numbers that every float dtype holds.
    return (torch.randint(-16, 17, output.shape, generator=source) / 8).to(output.dtype)


def compared(
    program: Program,
    name: str,
    mine: torch.Tensor | None,
    theirs: torch.Tensor | None,
    truth: torch.Tensor | None,
) -> Errors | None:
    """Errors to judge, or None. Raises where no number of runs would mend it."""
    if mine is None or theirs is None or truth is None:
        # A gradient that is zero everywhere may be left out.
        present = mine if theirs is None else theirs
        if present is None or not bool(present.any()):
            return None
        raise Wrong(f"{name} is {'missing' if mine is None else 'there'}, unlike eager's")
    if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
        raise Wrong(f"{name} is {mine.dtype}{list(mine.shape)}, eager's {theirs.dtype}{list(theirs.shape)}")
    if not theirs.is_floating_point():
        if not torch.equal(mine, theirs):
            raise Wrong(f"{name} differs from eager's, which is exact")
        return None
    odd = ~(theirs.isfinite() & truth.isfinite())
    if not torch.equal(mine[odd].isfinite(), theirs[odd].isfinite()):
        raise Wrong(f"{name} is finite where eager's is not, or the other way around")
    return errors(program, mine, theirs, truth)


def errors(
    program: Program,
    mine: torch.Tensor,
    theirs: torch.Tensor,
    truth: torch.Tensor,
    single: torch.Tensor | None = None,
) -> Errors:
    finite = theirs.isfinite() & truth.isfinite()
    m, t, x = (v[finite].double() for v in (mine, theirs, truth))
    if not x.numel():
        return 0.0, 0.0, 0.0
    double = mine.dtype == torch.float64
    unit = (program.unit() if double else torch.finfo(mine.dtype).eps) * x.abs().max().item()
    ours, eagers = (m - x).abs().max().item(), (t - x).abs().max().item()
    if double and single is not None:
        less = 2 * torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
        eagers = max(eagers, (single[finite].double() - x).abs().max().item() * less)
    return (ours if ours == ours else float("inf")), eagers, unit
