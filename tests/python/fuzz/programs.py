"""Random programs as users write them: views of expanded tensors, writes through views, scatters, matmuls of 1-4 dims.

A program is text. The generator runs each statement eagerly as it writes it, so that it knows what came out, and takes
back what PyTorch refuses. :data:`statements.STATEMENTS` holds the kinds of statement.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from . import statements

#: Names of dtypes in programs. Other precisions bind the names of all floats to one dtype.
FLOATS = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
LARGEST = 400  # elements of a value
BOUND = 1e3  # of its magnitude
FRESH = 12  # trials with nearby values


@dataclass(frozen=True)
class Leaf:
    """An argument. ``high``: an index below it; None: normal floats. ``layout`` is how its memory is laid out."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    layout: str = "dense"
    grad: bool = False
    high: int | None = None

    def tensor(self, seed: int, trial: int = 0, floats: torch.dtype | None = None) -> torch.Tensor:
        """Its value. Other trials are nearby values, and from :data:`FRESH` on values as unlike it as can be.

        ``floats``: the dtype to hold it in, instead of its own.
        """
        fresh = (trial,) if trial >= FRESH and self.high is None else ()
        source = torch.Generator().manual_seed(hash_of(seed, self.name, *fresh))
        if self.high is not None:
            value = torch.randint(0, self.high, self.shape, generator=source)
            return value.bool() if self.dtype == "bool" else value
        value = torch.randn(self.shape, generator=source, dtype=torch.float64)
        if 0 < trial < FRESH:
            near = torch.Generator().manual_seed(hash_of(seed, self.name, trial))
            value = value * (1 + torch.randn(self.shape, generator=near, dtype=torch.float64) / 64)
        value = value.to(FLOATS[self.dtype])
        value = value.to(floats or value.dtype)
        return self._laid_out(value).requires_grad_(self.grad)

    def _laid_out(self, value: torch.Tensor) -> torch.Tensor:
        if self.layout == "expanded":  # its first dim repeats
            return value[:1].clone().expand(value.shape)
        if self.layout == "transposed":
            return value.mT.contiguous().mT
        if self.layout == "spaced":
            wide = torch.zeros(*value.shape[:-1], 2 * value.shape[-1] + 1, dtype=value.dtype)
            wide[..., 1::2] = value
            return wide[..., 1::2]
        return value


@dataclass(frozen=True)
class Program:
    seed: int
    leaves: tuple[Leaf, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]

    def source(self) -> str:
        head = f"def program({', '.join(leaf.name for leaf in self.leaves)}):"
        return "\n    ".join([head, *self.lines, f"return {', '.join(self.outputs)},"]) + "\n"

    def function(self, floats: torch.dtype | None = None) -> Callable[..., tuple[torch.Tensor, ...]]:
        names = {"torch": torch, "F": F, **(dict.fromkeys(FLOATS, floats) if floats else FLOATS)}
        exec(compile(self.source(), f"<program {self.seed}>", "exec"), names)
        return names["program"]

    def arguments(self, trial: int = 0, floats: torch.dtype | None = None) -> list[torch.Tensor]:
        return [leaf.tensor(self.seed, trial, floats) for leaf in self.leaves]

    def unit(self) -> float:
        """Relative error of one rounding to the coarsest float that the program has."""
        written = re.findall(r"\b(?:b?f16|f32|f64)\b", " ".join(self.lines))
        floats = [leaf.dtype for leaf in self.leaves if leaf.dtype in FLOATS] + written
        return max(torch.finfo(FLOATS[name]).eps for name in floats)

    def __str__(self) -> str:
        """A Python file's worth: the arguments as comments, then the function."""
        return "".join(f"# {leaf}\n" for leaf in self.leaves) + self.source()


def names_in(text: str) -> list[str]:
    """Arguments and values that a line reads or writes."""
    return re.findall(r"\b[vx]\d+\b", text)


def hash_of(*parts: object) -> int:
    """The same on every run, unlike Python's."""
    state = 0xCBF29CE484222325
    for byte in repr(parts).encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state % 2**62


def generate(seed: int) -> Program | None:
    """The program of a seed; None where none came about that has a gradient."""
    return Generator(seed).program()


class Generator:
    """A program in the making. Kinds of statement ask it for operands and give it text."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.leaves: list[Leaf] = []
        self.lines: list[str] = []
        self.names: dict[str, object] = {"torch": torch, "F": F, **FLOATS}
        self.values: dict[str, torch.Tensor] = {}
        self.sizes = [self.random.choice([1, 2, 3, 4, 5, 7]) for _ in range(3)]
        self.used: set[str] = set()

    def program(self) -> Program | None:
        usual = self.random.choices(["f32", "f64", "bf16", "f16"], [16, 2, 3, 1])[0]
        for _ in range(self.random.choice([1, 2, 2, 3])):
            dtype = usual if self.random.random() < 0.9 else "f32"
            layout = self.random.choice(["dense", "dense", "transposed", "expanded", "spaced"])
            self.leaf(self.shape(), dtype=dtype, layout=layout, grad=self.random.random() < 0.8)
        kinds, weights = zip(*statements.STATEMENTS, strict=True)
        for _ in range(self.random.randint(3, 12)):
            self.random.choices(kinds, weights)[0](self)
        return self._finished()

    def _finished(self) -> Program | None:
        made = [name for name in self.values if name[0] == "v"]
        outputs = [name for name in made if name not in self.used] or made[-1:]
        self.random.shuffle(outputs)
        outputs = outputs[:4] + [name for name in made if self.random.random() < 0.06]
        if not any(self.values[name].requires_grad for name in outputs):
            return None
        leaves = tuple(leaf for leaf in self.leaves if leaf.name in self.used)
        return Program(self.seed, leaves, tuple(self.lines), tuple(dict.fromkeys(outputs)))

    # --- what statements ask for

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def shape(self) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.random.choice([1, 2, 2, 2, 3, 3, 4])))

    def size(self) -> int:
        return self.random.choice(self.sizes)

    def leaf(self, shape: tuple[int, ...], **how: object) -> str:
        """A new argument."""
        leaf = Leaf(f"x{len(self.leaves)}", tuple(shape), **how)
        least = {"transposed": 2, "expanded": 2, "spaced": 1}.get(leaf.layout, 0)
        if len(shape) < least:
            leaf = replace(leaf, layout="dense")
        self.leaves.append(leaf)
        self.names[leaf.name] = self.values[leaf.name] = leaf.tensor(self.seed)
        return leaf.name

    def index(self, high: int, shape: tuple[int, ...]) -> str:
        """An argument that holds indices below ``high``."""
        return self.leaf(shape, dtype="i64", high=high)

    def mask(self, shape: tuple[int, ...]) -> str:
        return self.leaf(shape, dtype="bool", high=2)

    def any(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        """A float value; recent ones more often."""
        found = [n for n, t in self.values.items() if t.is_floating_point() and wanted(t)]
        if not found:
            return None
        name = self.random.choice(found[-3:] if self.chance(0.6) else found)
        return name

    def like(self, x: str) -> str:
        """A value that broadcasts with ``x``: one that is there, or a new argument."""
        shape = self.values[x].shape
        fitting = [
            n
            for n, t in self.values.items()
            if t.is_floating_point()
            and t.ndim <= len(shape)
            and all(a in (1, b) for a, b in zip(reversed(t.shape), reversed(shape), strict=False))
        ]
        if self.chance(0.75):
            return self.random.choice(fitting)
        shape = shape[self.random.randint(0, len(shape)) :] if self.chance(0.4) else shape
        shape = [1 if self.chance(0.2) else n for n in shape]
        return self.leaf(tuple(shape), dtype=self.dtype(x), grad=self.chance(0.7))

    def dtype(self, x: str) -> str:
        return next(n for n, d in FLOATS.items() if d == self.values[x].dtype)

    # --- what they give

    def define(self, text: str) -> str | None:
        """``vN = text``; None, and nothing happened, if PyTorch refuses it or the value is of no use."""
        name = f"v{len(self.lines)}"
        try:
            value = eval(text, self.names)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None
        if not isinstance(value, torch.Tensor) or value.numel() > LARGEST or value.ndim > 5:
            return None
        if not bool((value.detach().abs() < BOUND).all()):
            return None
        self._mark(text)
        self.lines.append(f"{name} = {text}")
        self.names[name] = self.values[name] = value
        return name

    def change(self, text: str) -> bool:
        """A statement that overwrites something."""
        try:
            exec(text, self.names)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        self._mark(text)
        self.lines.append(text)
        return True

    def _mark(self, text: str) -> None:
        self.used.update(names_in(text))
