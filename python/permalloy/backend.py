"""The backend for ``torch.compile``: what to do with each graph that AOTAutograd hands over.

A joint graph goes to the compiler whole, and the compiler cuts it into forward and backward. Where that cannot be,
PyTorch's partitioner cuts, and forward and backward go to the compiler one by one. What cannot be compiled at all runs
operator by operator, and a :class:`~permalloy.Record` says why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import ShortenTraceback
from torch._functorch.partitioners import default_partition, has_recomputable_ops, min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.utils.checkpoint import CheckpointPolicy

from . import _core, collector, dump, generator, kernel_cache, kernels, native, patterns, result_types, stubs, traces
from . import record as book
from .config import config
from .errors import FallbackWarning, InternalError, PermalloyError, Unsupported, UnsupportedError
from .export import Exported, export, location_of, origin_of
from .record import Record
from .traces import Trace


def backend(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Entry point for ``torch.compile(backend="permalloy")``. ``options`` are attributes of ``permalloy.config``."""
    collector.register()
    try:
        with config.patch(**(options or {})):
            session = Session()
            on_cuda = any(isinstance(x, torch.Tensor) and x.is_cuda for x in example_inputs)
            graph = kernels.prepare(gm, example_inputs) if on_cuda else None
            # What is saved for the backward is part of a trace, and may depend on what is measured.
            keep = config.keep_traces and config.tune == "off" and traces.may_keep(gm, example_inputs)
            session.origin = origin_of(gm) if keep else None
        kinds = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "inference"}
        compile_all = aot_autograd(
            **{name: session.compiler(kind, keep) for name, kind in kinds.items()},
            partition_fn=session.partition,
            decompositions={},
            keep_inference_input_mutations=True,
        )
    except (AttributeError, TypeError, ValueError) as e:
        raise _plain(type(e), str(e)) from e
    try:
        with session.keeping(example_inputs) if keep else contextlib.nullcontext():
            compiled = compile_all(gm, example_inputs)
        if graph is not None:
            kernel_cache.keep_graph(graph)
        return compiled
    except UnsupportedError as e:
        raise _plain(UnsupportedError, e.reason, e.operator, e.location) from e
    except InternalError as e:
        raise _plain(InternalError, e.message, e.reproducer) from e


def _plain(kind: type[Exception], *args: Any) -> Exception:
    """An error of ``kind``. Dynamo wraps what a backend raises in an error of its own, but for errors of one class."""

    class Plain(kind, ShortenTraceback):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            kind.__init__(self, *args)
            self.first_useful_frame = None

    Plain.__name__, Plain.__qualname__ = kind.__name__, kind.__qualname__
    Plain.__module__ = "permalloy" if issubclass(kind, PermalloyError) else kind.__module__
    return Plain()


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How routes are chosen by measurement; the fields are those of ``Tuning`` in ``crates/python/src/pipeline.rs``."""

    mode: str
    cache_dir: str
    device_name: str
    versions: str

    @classmethod
    def of_config(cls) -> Tuning | None:
        if config.tune == "off":
            return None
        versions = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
        return cls(mode=config.tune, cache_dir=config.cache_dir, device_name="", versions=versions)


@dataclasses.dataclass(frozen=True)
class Options:
    """What the compiler gets; the fields are those of ``Options`` in ``crates/python/src/pipeline.rs``."""

    target: str
    device: int
    capability: int
    deterministic: bool
    strict: bool
    routes: list[tuple[str, str]]
    rewrites: list[tuple[str, str]]
    deny: list[str]
    check: bool
    check_kernels: bool
    emulate_eager_casts: bool
    chunked_loss: int | None
    memory_budget: float
    pool_outputs: bool
    tuning: Tuning | None

    @classmethod
    def of_config(cls) -> Options:
        c = config
        patterns.check(c.routes, c.rewrites, c.deny)  # once more: they can be changed in place
        routes, rewrites = list(c.routes.items()), list(c.rewrites.items())
        deny = list(c.deny)
        return cls(
            target="cpu",
            device=0,
            capability=0,
            deterministic=False,
            strict=c.strict,
            routes=routes,
            rewrites=rewrites,
            deny=deny,
            check=bool(c.check),
            check_kernels=c.check == "kernels",
            emulate_eager_casts=c.emulate_eager_casts,
            chunked_loss=c.chunk_bytes(),
            memory_budget=c.memory_budget,
            pool_outputs=c.pool_outputs,
            tuning=Tuning.of_config(),
        )

    def on(self, devices: set[torch.device]) -> Options:
        """For a graph whose tensors are on these devices. Raises :class:`Unsupported`."""
        # A graph for CUDA may hold tensors of the CPU: operators of PyTorch's take them.
        places = {(d.type, d.index or 0) for d in devices if d.type != "cpu"}
        if not places:
            return self
        if len(places) > 1 or places.copy().pop()[0] != "cuda":
            raise Unsupported(f"tensors on {' and '.join(sorted(str(d) for d in devices))}")
        (_, index) = places.pop()
        major, minor = torch.cuda.get_device_capability(index)
        name = torch.cuda.get_device_name(index)
        return dataclasses.replace(
            self,
            target="cuda",
            device=index,
            capability=10 * major + minor,
            deterministic=torch.are_deterministic_algorithms_enabled(),
            tuning=self.tuning and dataclasses.replace(self.tuning, device_name=name),
        )


class Session:
    """One call of the backend, with the options as they were then: the backward is compiled later."""

    def __init__(self) -> None:
        self.options = Options.of_config()
        self.partition_by = config.partition
        self.warn = config.warn
        self.origin: tuple[str, int, str] | None = None
        #: trace of each function made here that may be kept, and which half it is
        self._traces: dict[stubs.Boxed, tuple[Trace, str]] = {}

    def compiler(self, kind: str, keep: bool) -> Any:
        if not keep:
            return lambda gm, _example_inputs: self.compile(gm, kind)

        def make(gm: fx.GraphModule) -> tuple[stubs.Boxed, Trace | None, str]:
            runs = self.compile(gm, kind)
            return runs, *self._traces.get(runs, (None, kind))

        return traces.compiler(make)

    def keeping(self, inputs: Sequence[Any]) -> contextlib.AbstractContextManager[None]:
        return traces.kept(self._again, [self.options, self.partition_by], inputs)

    def _again(self, trace: Trace) -> dict[str, stubs.Boxed]:
        """The functions of a graph that another process traced."""
        name = book.next_name()
        record = Record(name, trace.kind, compiled=True, origin=self.origin, nodes=trace.nodes, kept=True)
        text = trace.text.replace(f'graph "{trace.name}" ', f'graph "{name}" ', 1)
        dump.graph(text, trace.kind)
        if trace.kind == "joint":
            compiled = self._compile_joint(text, trace.options, record)
            forward, backward = stubs.functions(compiled, trace.constants, trace.forward_outputs, trace.copied)
            made = {"forward": _boxed(forward), "backward": _boxed(backward)}
        else:
            runs = self._compile_graph(text, trace.options, record)
            made = {trace.kind: _boxed(stubs.with_trailing(runs, list(trace.constants.values())))}
        book.add(record)
        return made

    def _compile_joint(self, text: str, options: Options, record: Record) -> _Reporting:
        with _Timer(record, "compile"):
            compiled = _core.compile_joint(text, options)
        record.decisions = json.loads(compiled.records)
        return _Reporting(compiled, text, options, record)

    def _compile_graph(self, text: str, options: Options, record: Record) -> stubs.Boxed:
        with _Timer(record, "compile"):
            compiled = _core.compile_graph(text, options)
        record.decisions = json.loads(compiled.records())
        return _reporting(compiled, text, options, record)

    def _may_keep(self, exported: Exported, halves: dict[str, stubs.Boxed], record: Record, **more: Any) -> None:
        context = TracingContext.try_get()
        if context is None or context.guards_context.aotautograd_guards:
            return  # guards that only tracing adds
        if exported.shape_env is None and sum(c.nbytes for c in exported.constants.values()) <= traces.LIMIT:
            options = self.options.on(exported.devices)
            text, constants = exported.text, exported.constants
            trace = Trace(text, record.kind, record.graph, exported.nodes, options, constants, **more)
            self._traces.update((runs, (trace, half)) for half, runs in halves.items())

    # --- joint graphs

    def partition(
        self, joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **keywords: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        record = Record(book.next_name(), "joint", compiled=False, origin=origin_of(joint))
        result_types.correct(joint)
        modules = self._attempt(joint, record, lambda text: self._own_cut(joint, num_fwd_outputs, record, text))
        book.add(record)
        # A joint graph that could not be compiled is no loss yet: its halves are tried next, and warn if they fail.
        return modules or _torch_cut(joint, inputs, num_fwd_outputs, record, keywords)

    def _own_cut(
        self, joint: fx.GraphModule, num_fwd_outputs: int, record: Record, text: list[str]
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        if self.partition_by == "torch":
            raise Unsupported("config.partition is torch")
        if has_recomputable_ops(joint):
            raise Unsupported("activation checkpointing: the user's marks decide the cut")
        if torch._dynamo.config.compiled_autograd or torch._dynamo.compiled_autograd.compiled_autograd_enabled:
            raise Unsupported("compiled autograd looks into the backward")
        stubs.check_signature(joint)
        exported = self._export(joint, "joint", record, text, forward_outputs=num_fwd_outputs)
        options = self.options.on(exported.devices)
        compiled = self._compile_joint(exported.text, options, record)
        joint_stubs, copied = stubs.build(joint, exported, compiled, num_fwd_outputs)
        forward, backward = map(stubs.behind, joint_stubs)
        halves = {"forward": forward, "backward": backward}
        self._may_keep(exported, halves, record, forward_outputs=num_fwd_outputs, copied=copied)
        record.compiled = True
        return joint_stubs

    # --- forward, backward and inference graphs

    def compile(self, gm: fx.GraphModule, kind: str) -> stubs.Boxed:
        context = TracingContext.try_get()
        if kind == "forward" and context is not None and context.fw_metadata is not None:
            # With donated buffers AOTAutograd forbids retain_graph=True, and we make no use of them.
            context.fw_metadata.bw_donated_idxs = []
        runs = stubs.behind(gm)
        if runs is None:
            record = Record(book.next_name(), kind, compiled=False, origin=origin_of(gm))
            result_types.correct(gm)
            runs = self._attempt(gm, record, lambda text: self._whole(gm, kind, record, text))
            book.add(record)
            if runs is None:
                self._goes_native(gm, record)
                return native.boxed(gm)
        return _boxed(runs)

    def _whole(self, gm: fx.GraphModule, kind: str, record: Record, text: list[str]) -> stubs.Boxed:
        exported = self._export(gm, kind, record, text)
        options = self.options.on(exported.devices)
        runs = self._compile_graph(exported.text, options, record)
        record.compiled = True
        runs = stubs.with_trailing(runs, list(exported.constants.values()))
        self._may_keep(exported, {kind: runs}, record)
        return runs

    # --- both

    def _export(
        self, gm: fx.GraphModule, kind: str, record: Record, text: list[str], forward_outputs: int | None = None
    ) -> Exported:
        with _Timer(record, "export"):
            exported = export(gm, kind, name=record.graph, forward_outputs=forward_outputs)
        record.nodes = exported.nodes
        text.append(exported.text)
        dump.graph(exported.text, kind)
        return exported

    def _attempt(self, gm: fx.GraphModule, record: Record, make: Callable[[list[str]], Any]) -> Any:
        """What ``make`` returns, or None with the reason in the record. It adds the graph's text to its argument."""
        text: list[str] = []
        try:
            return make(text)
        except Unsupported as e:
            record.reason, record.operator, record.location = e.reason, e.operator, e.location
        except UnsupportedError as e:
            record.reason, record.operator, record.location = e.reason, e.operator, e.location
            book.add(record)
            raise
        except Exception as e:
            message = str(e) if isinstance(e, InternalError) else f"{type(e).__name__}: {e}"
            record.reason = f"internal error: {message}"
            # What has no text form yet is shown as FX prints it.
            shown = "".join(text) or "".join(f"// {line}\n" for line in str(gm.graph).splitlines())
            record.reproducer = dump.reproducer(shown, self.options, message)
            if self.options.strict:
                book.add(record)
                raise InternalError(message, record.reproducer) from e
            attached = f" with {record.reproducer}" if record.reproducer else ""
            self._warn_once(f"internal error, please report it{attached}: {message}", record)
        return None

    def _goes_native(self, gm: fx.GraphModule, record: Record) -> None:
        """Raises if the user's options forbid it; else warns."""
        if self.options.strict:
            raise UnsupportedError(record.reason or "", record.operator, record.location)
        for node in gm.graph.nodes if self.options.deny else ():
            entry = patterns.denies_native(self.options.deny, str(node.target)) if node.op == "call_function" else None
            if entry is not None:
                raise UnsupportedError(
                    f"config.deny has {entry}; the whole graph runs as PyTorch's own operators: {record.reason}",
                    str(node.target),
                    location_of(node),
                )
        self._warn_once(f"a graph runs as PyTorch's own operators: {record.reason}", record)

    def _warn_once(self, message: str, record: Record) -> None:
        with _lock:
            new = message not in _warned
            _warned.add(message)
        if new and self.warn:
            text = f"permalloy: {message}{book.at(record.operator, record.location)}"
            # Where the graph starts in the user's code: no frame of the stack is there while a backward compiles.
            file, line = record.origin[:2] if record.origin else (__file__, 0)
            warnings.warn_explicit(text, FallbackWarning, file, line)


_lock = threading.Lock()
_warned: set[str] = set()


def _torch_cut(
    joint: fx.GraphModule, inputs: Any, num_fwd_outputs: int, record: Record, keywords: dict[str, Any]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    with _Timer(record, "partition"):
        _keep_overwritten_inputs(joint)
        try:
            halves = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **keywords)
        except Exception as e:  # noqa: BLE001 - the other partitioner is tried, and the record keeps the reason
            record.reason = f"{record.reason}; min-cut partition: {type(e).__name__}: {e}"
            halves = default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **keywords)
        generator.unwrap(*halves)
        return halves


def _keep_overwritten_inputs(joint: fx.GraphModule) -> None:
    """Lets the backward read inputs as they were before the forward overwrote them.

    PyTorch's partitioners save such an input, or a view of it, and recompute from it after the write
    (pytorch/pytorch#197039). So everything but the write gets a copy, which they must save.
    """
    graph = joint.graph
    late: set[fx.Node] = set()  # depends on a tangent
    for node in graph.nodes:
        if (node.op == "placeholder" and stubs.is_tangent(node)) or late.intersection(node.all_input_nodes):
            late.add(node)
    written_after = stubs.written_after(joint)
    for node in graph.find_nodes(op="placeholder"):
        writes = [u for u in node.users if _writes(u, node)]
        if not (writes or node in written_after) or node in late or any(w in late for w in writes):
            continue
        reached, ahead = {node}, [node]
        while ahead:
            for user in ahead.pop().users:
                if user.op == "call_function" and user not in reached and user not in writes:
                    reached.add(user)
                    ahead.append(user)
        if reached.isdisjoint(late):
            continue
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta = {k: v for k, v in node.meta.items() if k in ("val", "tensor_meta")}
        copy.meta.update(recompute=CheckpointPolicy.MUST_SAVE, ac_graph_id=0, partitioner_tag="is_forward")
        node.replace_all_uses_with(copy, lambda u, keep=(copy, *writes): u.op == "call_function" and u not in keep)


def _writes(node: fx.Node, to: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return False
    written = [a for a, s in zip(node.args, target._schema.arguments) if s.alias_info and s.alias_info.is_write]
    return to in written


def _boxed(runs: stubs.Boxed) -> stubs.Boxed:
    """Marks a function of ours as one that takes the list of its arguments and empties it."""
    runs._boxed_call = True  # type: ignore[attr-defined]
    return runs


def _reporting(compiled: Any, text: str, options: Options, record: Record) -> stubs.Boxed:
    """``compiled`` with a reproducer saved when a check fails while it runs."""

    def run(args: list[Any]) -> list[Any]:
        try:
            results = compiled(args)
        except InternalError as e:
            raise InternalError(e.message, dump.reproducer(text, options, e.message)) from e
        if options.check_kernels:
            _compare_kernels(json.loads(compiled.kernel_checks()), record)
        return results

    return run


def _compare_kernels(found: list[dict[str, Any]], record: Record) -> None:
    """Puts what was found into the record. A kernel that is wrong is a bug of ours."""
    for check in found:
        check["reproducer"] = dump.kernel(check["reproducer"]) if check["reproducer"] else None
        book.add_kernel(record, check)
    for check in found:
        if check["wrong"]:
            raise InternalError(f"kernel {check['kernel']}: {check['wrong']}", check["reproducer"])


class _Reporting:
    """A compiled joint graph whose halves report."""

    def __init__(self, joint: Any, text: str, options: Options, record: Record) -> None:
        self.saved, self.saved_ints = joint.saved, joint.saved_ints
        self.forward = _reporting(joint.forward, text, options, record)
        self.backward = _reporting(joint.backward, text, options, record)


class _Timer:
    """Adds the time of a ``with`` block to a record."""

    def __init__(self, record: Record, stage: str) -> None:
        self.record, self.stage = record, stage

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.record.seconds[self.stage] = time.perf_counter() - self.start
