"""Running a graph operator by operator, as PyTorch would: the way out when a graph cannot be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.graph import _BoxedCodeGen

aten = torch.ops.aten


def boxed(gm: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The graph as a function that takes a list of arguments and empties it."""
    for node in gm.graph.nodes:
        kernel = KERNELS.get(node.target) if node.op == "call_function" else None
        if kernel is not None and not _has_kernel(node):
            node.target = kernel
    gm.graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    forward = gm.forward

    def run(args: list[Any]) -> Any:
        return forward(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _has_kernel(node: fx.Node) -> bool:
    value = next((a.meta.get("val") for a in node.all_input_nodes), None)
    device = value.device.type if isinstance(value, torch.Tensor) else "cpu"
    key = {"cpu": "CPU", "cuda": "CUDA"}.get(device, "PrivateUse1")
    return torch._C._dispatch_has_kernel_for_dispatch_key(node.target.name(), key)


def matmul_backward(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, mask: list[bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of ``torch.matmul``: dA = dY Bᵀ and dB = Aᵀ dY, each as one contraction.

    Batch dims that an operand lacks or has with size 1 are summed inside of the contraction.
    """
    kind = torch.promote_types(torch.promote_types(a.dtype, b.dtype), grad.dtype)
    g = grad.unsqueeze(-1) if b.ndim == 1 else grad
    g = (g.unsqueeze(-2) if a.ndim == 1 else g).to(kind)
    wide_a = a.unsqueeze(0) if a.ndim == 1 else a
    wide_b = b.unsqueeze(1) if b.ndim == 1 else b
    letters = [chr(ord("A") + i) for i in range(g.ndim - 2)]

    def own(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        """x without batch dims of size 1, and the letters of the others."""
        sizes = x.shape[:-2]
        kept = [(n, c) for n, c in zip(sizes, letters[len(letters) - len(sizes) :]) if n != 1]
        return x.reshape([n for n, _ in kept] + list(x.shape[-2:])).to(kind), "".join(c for _, c in kept)

    (ma, la), (mb, lb), batch = own(wide_a), own(wide_b), "".join(letters)
    da = torch.einsum(f"{batch}mn,{lb}kn->{la}mk", g, mb).reshape(a.shape).to(a.dtype) if mask[0] else None
    db = torch.einsum(f"{batch}mn,{la}mk->{lb}kn", g, ma).reshape(b.shape).to(b.dtype) if mask[1] else None
    return da, db


#: Operators that a graph may hold and that PyTorch has no kernel for on every device.
KERNELS: dict[Any, Callable[..., Any]] = {aten.matmul_backward.default: matmul_backward}
