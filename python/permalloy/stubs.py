"""The two modules that AOTAutograd gets from our partition of a joint graph.

AOTAutograd reads a partition's signature only: placeholders, outputs and their ``meta``. So each module is one opaque
call with a ``getitem`` for every result. What must hold (``_extract_fwd_bwd_modules`` in torch's ``partitioners.py``):

- forward: placeholders are the joint graph's without the tangents; outputs are its first outputs, then saved tensors,
  then saved integers. AOTAutograd tells the integers by ``meta["val"]`` being a ``SymInt``.
- backward: placeholders are saved integers, saved tensors, tangents; outputs are the gradients, None included.
- ``meta["desc"]`` of the output nodes describes each output.
- Inputs that require grad once they are written get their new contents after the forward, from AOTAutograd. A saved tensor
  may not be such an input: the backward would find it changed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput, SavedForBackwardsAOTOutput
from torch._functorch.partitioners import _extract_fwd_bwd_outputs
from torch.fx._lazy_graph_module import _make_graph_module
from torch.utils._sympy.functions import FloorDiv, Max, Min, PythonMod

from .errors import InternalError, Unsupported
from .export import DTYPES, Exported

#: Key in the meta of the opaque call: the boxed function behind it.
RUNS = "permalloy_runs"
Boxed = Callable[[list[Any]], list[Any]]


def is_tangent(node: fx.Node) -> bool:
    return "tangents" in str(node.target)


def check_signature(joint: fx.GraphModule) -> None:
    """Raises :class:`Unsupported` for joint graphs whose signature has parts that the stubs do not."""
    for node in joint.graph.nodes:
        if node.op == "placeholder" and any(
            part in str(node.target) for part in ("_seed", "_base_offset", "rng_state")
        ):
            raise Unsupported("random state as an argument of the graph", node)
        if node.meta.get("saved_tensor_with_no_vc_check", False):
            raise Unsupported("tensors that a custom function keeps without save_for_backward", node)


def build(
    joint: fx.GraphModule, exported: Exported, compiled: Any, num_fwd_outputs: int
) -> tuple[tuple[fx.GraphModule, fx.GraphModule], tuple[int, ...]]:
    """Forward and backward module for a compiled joint graph (``saved``, ``saved_ints``, ``forward``, ``backward``), and which
    results of the forward are copied.
    """
    fwd_outs, bwd_outs, fwd_descs, bwd_descs = _extract_fwd_bwd_outputs(joint, num_fwd_outputs=num_fwd_outputs)
    inputs = joint.graph.find_nodes(op="placeholder")
    primals, tangents = [n for n in inputs if not is_tangent(n)], [n for n in inputs if is_tangent(n)]

    values = _Values(joint, exported)
    saved = [values.tensor(name, ty) for name, ty in compiled.saved if name not in exported.constants]
    ints = [values.integer(text) for text in compiled.saved_ints]
    kept = [SavedForBackwardsAOTOutput(i) for i in range(len(saved) + len(ints))]
    late = written_after(joint)
    copied = tuple(num_fwd_outputs + i for i, node in enumerate(saved) if node in late)
    saved = [_NewValue(f"{node.name}_before", node.meta["val"]) if node in late else node for node in saved]

    forward, backward = functions(compiled, exported.constants, num_fwd_outputs, copied)
    halves = (
        _stub(joint, primals, fwd_outs + saved + ints, fwd_descs + kept, forward),
        _stub(joint, ints + saved + tangents, bwd_outs, bwd_descs, backward),
    )
    return halves, copied


def functions(
    compiled: Any, constants: dict[str, torch.Tensor], num_fwd_outputs: int, copied: Sequence[int]
) -> tuple[Boxed, Boxed]:
    """Forward and backward of a compiled joint graph as AOTAutograd calls them."""
    # A constant needs no saving: the backward gets it where it expects it; the forward's result of it is dropped.
    places = [i for i, (name, _) in enumerate(compiled.saved) if name in constants]
    inserted = {len(compiled.saved_ints) + i: constants[compiled.saved[i][0]] for i in places}
    dropped = {num_fwd_outputs + i for i in places}
    forward = without(with_trailing(compiled.forward, list(constants.values())), dropped)
    return with_copies(forward, copied), with_inserted(compiled.backward, inserted)


def written_after(joint: fx.GraphModule) -> set[fx.Node]:
    """Inputs that AOTAutograd overwrites when the forward is done."""
    outputs = joint.graph.find_nodes(op="output")[0].meta.get("desc", ())
    written = {d.mutated_input for d in outputs if isinstance(d, InputMutationAOTOutput)}
    return {n for n in joint.graph.find_nodes(op="placeholder") if n.meta.get("desc") in written}


def _stub(
    joint: fx.GraphModule, inputs: list[Any], outputs: list[Any], descs: list[Any], runs: Boxed
) -> fx.GraphModule:
    graph = fx.Graph()
    env: dict[Any, fx.Node] = {}
    for node in inputs:
        env[node] = graph.placeholder(node.name)
        env[node].meta = node.meta

    def opaque(*args: Any) -> list[Any]:
        return runs(list(args))

    call = graph.call_function(opaque, tuple(env.values()))
    call.meta[RUNS] = runs
    results: list[Any] = []
    for i, out in enumerate(outputs):
        if not isinstance(out, (fx.Node, _NewValue)) or out in env:
            results.append(env.get(out, out) if isinstance(out, (fx.Node, _NewValue)) else out)
            continue
        item = graph.call_function(operator.getitem, (call, i))
        item.meta = out.meta
        results.append(item)
    graph.output(tuple(results)).meta["desc"] = descs
    module = _make_graph_module(joint, graph)
    # Each module has a class of its own. AOTAutograd's cache keeps the backward for compiled autograd, which could not look into
    # the call anyway.
    type(module).__reduce__ = lambda _: (_without_graph, ())  # type: ignore[method-assign]
    return module


def _without_graph() -> fx.GraphModule:
    """What a stub is read back as."""
    raise Unsupported("compiled autograd looks into the backward, of which another process kept no graph")


def behind(gm: fx.GraphModule) -> Boxed | None:
    """The function behind a stub; None if the graph is no stub, or had nodes added to it (saved-tensor hooks do so)."""
    call, runs = None, None
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if call is None:
            call, runs = node, node.meta.get(RUNS)
        elif node.target is not operator.getitem or node.args[0] is not call:
            return None
    return runs


# --- argument lists ---------------------------------------------------------------------------


def with_trailing(runs: Boxed, constants: list[torch.Tensor]) -> Boxed:
    """``runs`` with constants added to its arguments."""
    if not constants:
        return runs

    def run(args: list[Any]) -> list[Any]:
        args.extend(constants)
        return runs(args)

    return run


def with_inserted(runs: Boxed, constants: dict[int, torch.Tensor]) -> Boxed:
    """``runs`` with constants put in at positions of its full argument list."""
    if not constants:
        return runs

    def run(args: list[Any]) -> list[Any]:
        for place, value in constants.items():  # ascending
            args.insert(place, value)
        return runs(args)

    return run


def without(runs: Boxed, places: set[int]) -> Boxed:
    """``runs`` without some of its results."""
    if not places:
        return runs
    return lambda args: [x for i, x in enumerate(runs(args)) if i not in places]


def with_copies(runs: Boxed, places: Sequence[int]) -> Boxed:
    """``runs`` with some of its results copied, strides and all."""
    if not places:
        return runs

    def run(args: list[Any]) -> list[Any]:
        results = runs(args)
        for place in places:
            x = results[place]
            results[place] = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
        return results

    return run


# --- values that the FX graph may not have ----------------------------------------------------


class _NewValue:
    """Stands for a node that is not in the joint graph."""

    def __init__(self, name: str, val: Any) -> None:
        self.name, self.meta = name, {"val": val}


class _Values:
    def __init__(self, joint: fx.GraphModule, exported: Exported) -> None:
        self.exported = exported
        self.fake_mode = next(
            (v.fake_mode for n in joint.graph.nodes if hasattr(v := n.meta.get("val"), "fake_mode")), None
        )

    def tensor(self, name: str, ty: str | None) -> fx.Node | _NewValue:
        node = self.exported.values.get(name)
        if ty is None:
            if node is None:
                raise InternalError(f"saved value {name} is not in the graph, and has no type")
            return node
        plain = re.sub(r"\W", "_", name)  # names in a graph may hold dots
        while plain in self.exported.values:
            plain += "_"
        return _NewValue(plain, self._fake(ty))

    def integer(self, text: str) -> fx.Node | _NewValue:
        node = self.exported.integers.get(text)
        return node or _NewValue("size_" + re.sub(r"\W+", "_", text), self._size(text, symbolic=True))

    def _fake(self, text: str) -> torch.Tensor:
        """An abstract tensor of a type such as ``f32[s0, 8] strides=[8, 1] @cpu``."""
        found = re.fullmatch(r"(\w+)\[(.*?)\](?: strides=\[(.*?)\])?(?: @(\S+))?", text)
        dtype = {v: k for k, v in DTYPES.items()}.get(found[1]) if found else None
        if not found or dtype is None or self.fake_mode is None:
            raise InternalError(f"type of a saved value: {text}")
        shape = [self._size(t) for t in _split(found[2])]
        with self.fake_mode:
            if found[3] is None:
                return torch.empty(shape, dtype=dtype, device=found[4] or "cpu")
            strides = [self._size(t) for t in _split(found[3])]
            return torch.empty_strided(shape, strides, dtype=dtype, device=found[4] or "cpu")

    def _size(self, text: str, symbolic: bool = False) -> int | torch.SymInt:
        env = self.exported.shape_env
        names = {s.name: s for s in env.backed_var_to_val} if env is not None else {}
        if not re.fullmatch(r"[\w\s+*,()-]+", text):
            raise InternalError(f"size expression: {text}")
        scope = {"__builtins__": {}, "floordiv": FloorDiv, "mod": PythonMod, "min": Min, "max": Max, **names}
        try:
            expr = sympy.sympify(eval(text, scope))
        except (NameError, SyntaxError, TypeError) as e:
            raise InternalError(f"size expression {text}: {e}") from e
        if expr.is_Integer:
            if symbolic:
                raise InternalError(f"saved integer {text} is a constant")
            return int(expr)
        hint = int(expr.xreplace(env.backed_var_to_val))
        return env.create_symintnode(expr, hint=hint)


def _split(text: str) -> list[str]:
    """Splits at commas outside of parentheses."""
    out, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            out.append(text[last:i].strip())
            last = i + 1
    return [*out, text[last:].strip()] if text.strip() else []
