"""Random numbers in graphs that are cut for activation checkpointing.

What the backward computes once more must draw the numbers of the forward. PyTorch's partitioner wraps each such operator:
``run_and_save_rng_state`` in the forward, ``run_with_rng_state`` in the backward. Neither is an operator, so the graph could
not be compiled. Here they become operators around the wrapped one, which keeps its place in their order.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.fx.node import has_side_effect
from torch.library import Library

_library = Library("permalloy", "DEF")
_library.define("rng_state() -> Tensor")
_library.define("set_rng_state(Tensor state) -> ()")
_library.impl("rng_state", torch.get_rng_state, "CompositeExplicitAutograd")
_library.impl("set_rng_state", torch.set_rng_state, "CompositeExplicitAutograd")

_get, _set = torch.ops.permalloy.rng_state.default, torch.ops.permalloy.set_rng_state.default
has_side_effect(_set)


def unwrap(forward: fx.GraphModule, backward: fx.GraphModule) -> None:
    """Writes the wrappers in both halves of a graph out; leaves them if one speaks of another generator than the CPU's."""
    saves = [n for n in forward.graph.output_node().args[0] if _is_state(n)]
    withs = backward.graph.find_nodes(op="call_function", target=run_with_rng_state)
    # The states are outputs of the forward in the order in which the backward counts its own.
    withs = {node.args[0].name: node for node in withs}
    pairs = [(save, withs.get(f"rng_state_output_{i}")) for i, save in enumerate(saves)]
    results = [{user.args[1]: user for user in save.args[0].users} for save in saves]
    complete = len(withs) == len(pairs) and all(w for _, w in pairs) and all(set(r) == {0, 1} for r in results)
    if not complete or not all(_on_cpu(save.args[0], r[1]) for save, r in zip(saves, results)):
        return
    for (save, redo), result in zip(pairs, results):
        meta = result[1].meta
        _write_out_forward(forward.graph, save.args[0], save, result[1])
        _write_out_backward(backward.graph, redo, meta)
    for half in (forward, backward):
        half.recompile()


def _is_state(node: Any) -> bool:
    wrapped = isinstance(node, fx.Node) and node.target is operator.getitem and node.args[1] == 0
    return wrapped and node.args[0].target is run_and_save_rng_state


def _write_out_forward(graph: fx.Graph, node: fx.Node, state: fx.Node, result: fx.Node) -> None:
    with graph.inserting_before(node):
        new_state = graph.call_function(_get)
        made = graph.call_function(node.args[0], node.args[1:], node.kwargs)
    new_state.meta["val"], made.meta = _state_like(state), result.meta
    for old, new in ((state, new_state), (result, made)):
        old.replace_all_uses_with(new)
        graph.erase_node(old)
    graph.erase_node(node)


def _write_out_backward(graph: fx.Graph, node: fx.Node, meta: dict[str, Any]) -> None:
    state = node.args[0]
    state.meta["val"] = _state_like(state)
    with graph.inserting_before(node):
        before = graph.call_function(_get)
        graph.call_function(_set, (state,)).meta["val"] = None
        made = graph.call_function(node.args[1], node.args[2:], node.kwargs)
        graph.call_function(_set, (before,)).meta["val"] = None
    before.meta["val"], made.meta = state.meta["val"], dict(meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _state_like(node: fx.Node) -> torch.Tensor:
    """What a graph knows of a state: its size is no symbol, though tracing with symbolic sizes makes it one."""
    with node.meta["val"].fake_mode:
        return torch.empty(torch.get_rng_state().shape, dtype=torch.uint8)


def _on_cpu(node: fx.Node, result: fx.Node) -> bool:
    values: list[Any] = [n.meta.get("val") for n in (*node.all_input_nodes, result)]
    tensors = [v for v in torch.utils._pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]
    return all(t.device.type == "cpu" for t in tensors)
