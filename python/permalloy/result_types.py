"""Results whose type PyTorch's shape functions get wrong, which would make compiled code round or refuse them.

They only pass from a forward operator to its backward, so nothing that was traced depends on what was said of them.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

aten = torch.ops.aten
_NORMS = (
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten.native_batch_norm.default,
)
_BAGS = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)


def correct(gm: fx.GraphModule) -> None:
    """Gives the nodes of ``gm`` the types that PyTorch's kernels for the CPU return."""
    for target in _NORMS:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            _statistics(node)
    for target in _BAGS:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            _bag_of_each_index(node)


def _statistics(node: fx.Node) -> None:
    """Mean and 1/σ of 16-bit input are f32 where a parameter or a running statistic is; the shape function rounds them."""
    x, *others = (a.meta["val"] for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor))
    if x.device.type == "cpu" and x.dtype.itemsize == 2 and any(o.dtype == torch.float32 for o in others):
        for at in (1, 2):
            _replace(node, at, node.meta["val"][at].shape, torch.float32)


def _bag_of_each_index(node: fx.Node) -> None:
    """Sums of bf16 need no bag numbers, as those of f32 and f16; the shape function leaves bf16 out."""
    schema = [a.name for a in node.target._schema.arguments]
    given = {**dict(zip(schema, node.args, strict=False)), **node.kwargs}
    weight, scale = given["weight"].meta["val"], given.get("per_sample_weights")
    if (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and given.get("mode", 0) == 0
        and given.get("padding_idx", -1) < 0
        and weight.stride(1) == 1
        and (scale is None or scale.meta["val"].stride(0) == 1)
    ):
        _replace(node, 1, (0,), node.meta["val"][1].dtype)


def _replace(node: fx.Node, at: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = list(node.meta["val"])
    values[at] = values[at].new_empty(shape, dtype=dtype)
    node.meta["val"] = tuple(values)
    for user in node.users:
        if user.target is operator.getitem and user.args[1] == at:
            user.meta["val"] = values[at]
