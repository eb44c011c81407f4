"""What the compiler asks of Python: schemas, and operators that PyTorch's C functions cannot reach."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .export import DTYPES
from .native import KERNELS


@functools.cache
def operator_named(name: str) -> torch._ops.OpOverload | None:
    """``torch.ops.aten.mm.default`` for ``aten.mm.default``; None if there is no such operator."""
    found: Any = torch.ops
    parts = name.split(".")
    if len(parts) != 3:
        return None
    for part in parts:
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def schema(name: str) -> str | None:
    """The operator's schema as PyTorch prints it."""
    op = operator_named(name)
    return None if op is None else str(op._schema)


def call_op(name: str, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Calls an operator; its results as a list."""
    op = operator_named(name)
    if op is None:
        raise RuntimeError(f"PyTorch has no operator {name}")
    fn: Callable[..., Any] = KERNELS.get(op, op)
    result = fn(*args, **kwargs)
    if isinstance(result, (list, tuple)):
        return list(result)
    return [] if result is None else [result]


_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def constant(kind: str, text: str) -> Any:
    """A dtype (by its name in the text form), device, layout or memory format."""
    if kind == "dtype":
        return _DTYPES[text]
    return torch.device(text) if kind == "device" else getattr(torch, text)
