"""A stand-in for the compiler in tests of the glue: it cuts joint graphs by reachability, and runs FX."""

from __future__ import annotations

import contextlib
import re
from types import SimpleNamespace
from unittest import mock

import torch
from permalloy import backend, stubs
from permalloy.export import export
from torch import fx
from torch._functorch.partitioners import _extract_fwd_bwd_outputs, _extract_graph_with_inputs_outputs, is_sym_node


@contextlib.contextmanager
def installed(typed: bool = False):
    """The backend with this engine. ``typed``: saved values come with a type, as those do that FX does not know."""
    engine = Engine(typed)
    with mock.patch.object(backend, "_core", engine), mock.patch.object(backend, "export", engine.export):
        yield engine


class Engine:
    def __init__(self, typed: bool) -> None:
        self.typed, self.joints, self.graphs = typed, 0, 0

    def export(self, gm, kind, **keywords):
        self.gm, self.exported = gm, export(gm, kind, **keywords)
        return self.exported

    def compile_graph(self, text, options):
        self.graphs += 1
        return Runner(self.gm, self.exported)

    def compile_joint(self, text, options):
        self.joints += 1
        joint, exported = self.gm, self.exported
        count = int(re.search(r"forward_outputs=(\d+)", text)[1])
        fwd_outs, bwd_outs, fwd_descs, bwd_descs = _extract_fwd_bwd_outputs(joint, num_fwd_outputs=count)
        inputs = joint.graph.find_nodes(op="placeholder")
        tangents = [n for n in inputs if stubs.is_tangent(n)]
        late = set(tangents)
        for node in joint.graph.nodes:
            if late.intersection(node.all_input_nodes):
                late.add(node)
        asked = {n for n in bwd_outs if isinstance(n, fx.Node) and n not in late}
        first: dict[str, fx.Node] = {}
        saved, ints = [], []
        for node in list(joint.graph.nodes):
            if node in late or node.op == "output" or not (node in asked or late.intersection(node.users)):
                continue
            if is_sym_node(node):
                text = next(t for t, n in exported.integers.items() if str(n.meta["val"]) == str(node.meta["val"]))
                if text in first:
                    node.replace_all_uses_with(first[text])
                else:
                    first[text] = node
                    ints.append(text)
            elif isinstance(node.meta.get("val"), torch.Tensor):
                saved.append(node)
        values, constants = list(exported.values), set(exported.constants)
        named = [next(v for v in values if exported.values[v] is n) for n in saved if n.name not in constants]
        kept = [n for n in saved if n.name not in constants]
        forward = _extract_graph_with_inputs_outputs(
            joint.graph, [n for n in inputs if n not in tangents], fwd_outs + kept + list(first.values()),
            fwd_descs + [None] * (len(kept) + len(first)), "forward",
        )  # fmt: skip
        backward = _extract_graph_with_inputs_outputs(
            joint.graph, list(first.values()) + kept + tangents, bwd_outs, bwd_descs, "backward"
        )
        types = dict(re.findall(r"%(\w+): (\w+\[[^]]*\](?: strides=\[[^]]*\])?)", exported.text))
        return SimpleNamespace(
            saved=[(n, types[n] if self.typed else None) for n in named],
            saved_ints=ints,
            forward=Runner(fx.GraphModule(joint, forward), exported),
            backward=Runner(fx.GraphModule(joint, backward)),
            records="[]",
        )


class Runner:
    def __init__(self, gm, exported=None) -> None:
        self.gm, self.constants = gm, len(exported.constants) if exported else 0

    def __call__(self, args):
        given = args[: len(args) - self.constants]
        args.clear()
        return list(self.gm(*given))

    def records(self):
        return "[]"
