"""``aten.matmul_backward``: a kernel where PyTorch has none, and graphs that hold it.

On a CPU and on CUDA PyTorch splits ``matmul`` into reshapes, ``mm`` and ``bmm`` before a backend sees it, forward and
backward. :func:`capture_matmul` keeps the backward one operator, so that the compiler chooses how both gradients are
made. Gradients are the same with it and without.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad
from torch.library import Library

from .native import matmul_backward

aten = torch.ops.aten
_libraries: list[Library] = []
_DEVICES = ("CPU", "CUDA")


def register() -> None:
    """Gives ``aten.matmul_backward`` the kernels that PyTorch lacks, so that it can be called by name."""
    missing = [k for k in ("Meta", *_DEVICES) if not _has_kernel("matmul_backward", k)]
    if missing:
        library = Library("aten", "IMPL")
        for key in missing:
            library.impl("matmul_backward", _shapes if key == "Meta" else _dense, key)
        _libraries.append(library)


def capture_matmul() -> None:
    """Makes ``aten.matmul_backward`` the backward of ``torch.matmul`` in this process, compiled or not.

    Functions compiled before stay as they are.
    """
    if not is_on():
        library = Library("aten", "IMPL")
        for device in _DEVICES:
            library.impl("matmul", _matmul, f"Autograd{device}")
        library.permalloy_captures = True  # type: ignore[attr-defined]
        _libraries.append(library)
        aten.matmul.default._dispatch_cache.clear()  # tracing with symbolic sizes looks there first


def is_on() -> bool:
    """Whether :func:`capture_matmul` was called."""
    return any(getattr(library, "permalloy_captures", False) for library in _libraries)


def _has_kernel(op: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{op}", key)


def _shapes(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, mask: list[bool]) -> tuple[Any, Any]:
    return a.new_empty(a.shape) if mask[0] else None, b.new_empty(b.shape) if mask[1] else None


def _dense(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, mask: list[bool]) -> tuple[Any, Any]:
    da, db = matmul_backward(grad, a, b, mask)
    return None if da is None else da.contiguous(), None if db is None else db.contiguous()


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(a, b)
        with torch._C._AutoDispatchBelowAutograd():
            return aten.matmul.default(a, b)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, Any]:
        a, b = ctx.saved_tensors
        mask = list(ctx.needs_input_grad)
        if torch.is_grad_enabled():  # the operator has no derivative of its own
            return matmul_backward(grad, a, b, mask)
        return aten.matmul_backward.default(grad, a, b, mask)


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    plain = (
        not torch.is_grad_enabled()
        or not (a.requires_grad or b.requires_grad)
        or forward_ad._current_level >= 0
        or not all(x.layout is torch.strided and not _is_wrapped(x) for x in (a, b))
    )
    return aten.matmul.default.decompose(a, b) if plain else _Matmul.apply(a, b)


def _is_wrapped(x: torch.Tensor) -> bool:
    """A tensor of ``torch.func`` or a nested one, which have rules of their own for the parts of a matmul."""
    return x.is_nested or torch._C._functorch.is_functorch_wrapped_tensor(x)
