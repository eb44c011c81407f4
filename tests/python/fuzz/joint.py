"""Joint graphs of programs, recorded one dispatch at a time on real tensors, and compiled without AOTAutograd.

AOTAutograd takes a hundred times as long as the compiler for a program of this size. Underneath it works with the same
parts of PyTorch: autograd over functional tensors. So most programs are recorded here, and one in some goes through
AOTAutograd itself. Writes to arguments become ``copy_`` at the end where no gradient flows into them, and outputs of
the forward otherwise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import torch
from permalloy import _core
from permalloy.backend import Options
from permalloy.export import export
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from .check import Results, cotangent
from .programs import Program


class Recorder(TorchDispatchMode):
    """Writes down each operator that reaches it. Tensors are told apart by identity, so all are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.nodes, self.kept = fx.Graph(), {}, []
        self.constants: dict[str, torch.Tensor] = {}

    def know(self, value: torch.Tensor, node: fx.Node) -> None:
        node.meta["val"] = value.detach()
        self.nodes[id(value)] = node
        self.kept.append(value)

    def placeholder(self, name: str, value: torch.Tensor) -> None:
        self.know(value, self.graph.placeholder(name))

    def node_of(self, value: torch.Tensor) -> fx.Node:
        if id(value) not in self.nodes:
            name = f"_constant{len(self.constants)}"
            self.constants[name] = value
            self.know(value, self.graph.create_node("get_attr", name))
        return self.nodes[id(value)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        moved_args, moved_kwargs = tree_map_only(torch.Tensor, self.node_of, (args, kwargs or {}))
        node = self.graph.call_function(func, moved_args, moved_kwargs)
        if isinstance(result, torch.Tensor):
            self.know(result, node)
        elif isinstance(result, (tuple, list)):
            node.meta["val"] = result
            for i, item in enumerate(result):
                if isinstance(item, torch.Tensor):
                    self.know(item, self.graph.call_function(operator.getitem, (node, i)))
        return result


class Joint:
    """A program's joint graph, compiled."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.leaves = [leaf.name for leaf in program.leaves if leaf.grad]
        recorder = Recorder()
        outputs, self.tangents, self.rewritten, gradients = self._recorded(recorder)
        outputs += self.rewritten.values()
        forward = [recorder.node_of(v) for v in outputs]
        recorder.graph.output([*forward, *(None if g is None else recorder.node_of(g) for g in gradients)])
        gm = fx.GraphModule(recorder.constants, recorder.graph)
        exported = export(gm, "joint", forward_outputs=len(forward))
        self.constants = list(exported.constants.values())
        options = dataclasses.replace(Options.of_config(), check=True)
        self.compiled = _core.compile_joint(exported.text, options)

    def _recorded(self, recorder: Recorder) -> tuple[list, list[str], dict[str, torch.Tensor], list]:
        """Outputs, names of those with a tangent, new contents of arguments that then need a gradient, gradients."""
        program = self.program
        arguments = [a.detach() for a in program.arguments()]
        for i, a in enumerate(arguments):
            recorder.placeholder(f"primals_{i + 1}", a)
        with recorder, functional():
            inside = [torch._to_functional_tensor(a) for a in arguments]
            for a, leaf in zip(inside, program.leaves, strict=True):
                a.requires_grad_(leaf.grad)
            # Where a write makes an argument need a gradient, it no longer is the tensor that the program was given.
            given = [a for a in inside if a.requires_grad]
            outputs = dict(zip(program.outputs, program.function()(*inside), strict=True))
            roots = {n: o for n, o in outputs.items() if o.requires_grad}
        tangents = [cotangent(program, n, o, trial=0) for n, o in roots.items()]
        for i, t in enumerate(tangents):
            recorder.placeholder(f"tangents_{i + 1}", t)
        with recorder, functional():
            tangents = [torch._to_functional_tensor(t) for t in tangents]
            gradients = torch.autograd.grad(list(roots.values()), given, tangents, allow_unused=True)
            rewritten = {}
            for leaf, a, before in zip(program.leaves, inside, arguments, strict=True):
                if not torch._functionalize_has_data_mutation(a):
                    continue
                if a.requires_grad:
                    rewritten[leaf.name] = unwrapped(a)
                else:
                    node = recorder.graph.call_function(
                        torch.ops.aten.copy_.default, (recorder.node_of(before), recorder.node_of(unwrapped(a)))
                    )
                    node.meta["val"] = before
            values = [unwrapped(o) for o in outputs.values()]
            return values, list(roots), rewritten, [None if g is None else unwrapped(g) for g in gradients]

    def __call__(self, trial: int = 0) -> Results:
        program, compiled = self.program, self.compiled
        with torch.no_grad():
            arguments = [a.detach() for a in program.arguments(trial)]
            results = compiled.forward([*arguments, *self.constants])
            count = len(program.outputs)
            found = {f"output {n}": v for n, v in zip(program.outputs, results[:count], strict=True)}
            tangents = [cotangent(program, n, found[f"output {n}"], trial) for n in self.tangents]
            rewritten = dict(zip(self.rewritten, results[count:], strict=False))
            saved, ints = results[count + len(rewritten) :], len(compiled.saved_ints)
            saved = [*saved[len(saved) - ints :], *saved[: len(saved) - ints]]
            gradients = compiled.backward([*saved, *tangents])
        found.update({f"gradient of {n}": g for n, g in zip(self.leaves, gradients, strict=True)})
        for leaf, a in zip(program.leaves, arguments, strict=True):
            found[f"{leaf.name} afterwards"] = rewritten.get(leaf.name, a)
        return found


@contextlib.contextmanager
def functional() -> Iterator[None]:
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()


def unwrapped(value: torch.Tensor) -> torch.Tensor:
    torch._sync(value)
    return torch._from_functional_tensor(value)
