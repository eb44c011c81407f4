"""Makes a failing program smaller while it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from .programs import FLOATS, Leaf, Program, names_in


def shrink(program: Program, fails: Callable[[Program], bool], budget: int = 200) -> Program:
    """The smallest program found. Each step takes an output or a line away, or puts an argument in a line's place."""
    improved = True
    while improved and budget > 0:
        improved = False
        for smaller in candidates(program):
            budget -= 1
            if fails(smaller):
                program, improved = smaller, True
                break
            if budget <= 0:
                break
    return program


def candidates(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        for out in program.outputs:
            yield replace(program, outputs=tuple(o for o in program.outputs if o != out))
    values = evaluated(program)
    for i in reversed(range(len(program.lines))):
        line = program.lines[i]
        rest = (*program.lines[:i], *program.lines[i + 1 :])
        name = line.partition(" = ")[0]
        if name not in values:
            yield pruned(replace(program, lines=rest))
            continue
        if not any(name in names_in(other) for other in rest) and name not in program.outputs:
            yield pruned(replace(program, lines=rest))
            continue
        if name in program.outputs and len(program.outputs) == 1 and i == len(program.lines) - 1:
            # The value before it is returned instead.
            for operand in dict.fromkeys(n for n in names_in(line) if n[0] == "v" and n != name):
                yield pruned(replace(program, lines=rest, outputs=(operand,)))
            continue
        value = values[name]
        if value.is_floating_point():
            dtype = next(n for n, d in FLOATS.items() if d == value.dtype)
            leaf = Leaf(name, tuple(value.shape), dtype, grad=value.requires_grad)
            yield pruned(replace(program, lines=rest, leaves=(*program.leaves, leaf)))


def evaluated(program: Program) -> dict[str, torch.Tensor]:
    """The value of each line that defines one."""
    names: dict[str, object] = {"torch": torch, "F": torch.nn.functional, **FLOATS}
    names.update({leaf.name: a for leaf, a in zip(program.leaves, program.arguments(), strict=True)})
    for line in program.lines:
        exec(line, names)
    return {n: v for n, v in names.items() if n[0] == "v" and isinstance(v, torch.Tensor)}


def pruned(program: Program) -> Program:
    """Without arguments that nothing reads."""
    read = {n for line in program.lines for n in names_in(line)} | set(program.outputs)
    return replace(program, leaves=tuple(leaf for leaf in program.leaves if leaf.name in read))
