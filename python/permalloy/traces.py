"""Traces kept for the next process: AOTAutograd need not trace a graph again that it traced once.

PyTorch's own cache of such traces (``AOTAutogradCache``) holds the wrappers around a graph and, where Inductor puts generated code,
the text form of ours, which is compiled anew. Two traces are equal if what Dynamo captured, the inputs and all settings are. Left out
are graphs whose derivatives may change without a word of that: those with operators that are not PyTorch's own, and those with sizes
that are symbols. PyTorch's own key would do, too, but makes PyTorch import Inductor, which takes longer than tracing.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import autograd_cache
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._inductor.output_code import OutputCode
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from . import capture

Boxed = Callable[[list[Any]], list[Any]]


@dataclasses.dataclass
class Trace:
    """What the functions of a graph are made from again. Both halves of a joint graph hold the same one."""

    text: str
    kind: str
    name: str
    nodes: int
    options: Any
    constants: dict[str, torch.Tensor]
    forward_outputs: int = 0
    #: results of the forward that are copied
    copied: tuple[int, ...] = ()
    #: functions by half, once they are made; never kept
    made: dict[str, Boxed] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A tensor on a device cannot be written while AOTAutograd traces with fake ones.
        with unset_fake_temporarily():
            constants = {name: (c.cpu(), c.device) for name, c in self.constants.items()}
        return {**self.__dict__, "constants": constants, "made": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        with unset_fake_temporarily():
            self.constants = {name: c.to(device) for name, (c, device) in state["constants"].items()}


#: Makes the functions of a trace that was kept, by half: the session of the compile at hand.
_again: contextvars.ContextVar[Callable[[Trace], dict[str, Boxed]]] = contextvars.ContextVar("permalloy_again")
#: What tells the compile at hand from others of the same graph.
_tag: contextvars.ContextVar[str] = contextvars.ContextVar("permalloy_tag")


#: Bytes of constants that a trace may hold.
LIMIT = 1 << 16


class Code(OutputCode):
    """A function of ours in the form that AOTAutograd's cache takes."""

    def __init__(self, runs: Boxed, trace: Trace | None, half: str) -> None:
        self.runs, self.trace, self.half = runs, trace, half
        self._boxed_call = True
        self._fx_graph_cache_key = self._fx_graph_cache_debug_lines = None
        self._time_taken_ns = 0

    def __call__(self, inputs: Any) -> Any:
        return self.runs(inputs)

    def prepare_for_serialization(self) -> None:
        if self.trace is None:
            raise autograd_cache.BypassAOTAutogradCache("permalloy keeps no trace of this graph")
        del self.runs

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        if self.trace.made is None:
            self.trace.made = _again.get()(self.trace)
        self.runs = self.trace.made[self.half]

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass


def compiler(make: Callable[[fx.GraphModule], tuple[Boxed, Trace | None, str]]) -> Any:
    """A compiler whose results AOTAutograd may keep. ``make`` gives a function, its trace, and which half of it this is."""
    return SerializableAOTDispatchCompiler(Code, lambda gm, _example_inputs: Code(*make(gm)))


@contextlib.contextmanager
def kept(again: Callable[[Trace], dict[str, Boxed]], tag: Any, inputs: Sequence[Any]) -> Iterator[None]:
    """For the call of AOTAutograd: it looks for a trace that was kept, and keeps the one it makes. ``tag`` tells compiles with
    different options apart.
    """
    tokens = _again.set(again), _tag.set(repr([_package(), tag, _settings(), _aliases(inputs)]))
    try:
        # The backward is made at once, not when it first runs, when this would be over.
        with functorch_config.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True):
            yield
    finally:
        _again.reset(tokens[0])
        _tag.reset(tokens[1])


@dataclasses.dataclass
class _Key:
    """What a trace depends on; the cache's pickler knows which parts of these count."""

    gm: fx.GraphModule
    inputs: list[Any]
    aot_config: Any
    functorch_config: Any
    tag: str


def _key(gm: fx.GraphModule, inputs: list[Any], aot_config: Any, fx_config: Any) -> tuple[str, list[str]]:
    tag = _tag.get(None)
    if tag is None:
        return _pytorchs_key(gm, inputs, aot_config, fx_config)
    autograd_cache.check_cacheable(gm)
    key = _Key(gm, inputs, aot_config, functorch_config.save_config(), tag)
    return "p" + autograd_cache.AOTAutogradCachePickler(gm).get_hash(key), []


_pytorchs_key = autograd_cache.autograd_cache_key
autograd_cache.autograd_cache_key = _key


def may_keep(gm: torch.nn.Module, inputs: Sequence[Any]) -> bool:
    """Whether what Dynamo captured says all that the trace of it depends on, but for settings."""
    symbolic = any(isinstance(x, torch.SymInt | torch.SymFloat) for x in inputs)
    if symbolic or not isinstance(gm, fx.GraphModule) or _get_current_dispatch_mode_stack() or not _folder_is_safe():
        return False
    return all(_is_plain(node) for node in gm.graph.nodes)


def _folder_is_safe() -> bool:
    """Whether nobody but this user can have written what is read: PyTorch unpickles it."""
    folder = cache_dir()
    for path in (folder, os.path.join(folder, "aotautograd")):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
            return False
    return True


def _is_plain(node: fx.Node) -> bool:
    """PyTorch's own function, and not a graph or a tensor that the module holds."""
    if node.op in ("get_attr", "call_module"):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target.namespace in ("aten", "prims")
    return not isinstance(node.target, torch._ops.OperatorBase | torch._ops.OpOverloadPacket)


def _settings() -> list[Any]:
    """Settings that decide what operators a trace consists of."""
    cuda, c = torch.backends.cuda, torch._C
    devices = ("cpu", "cuda")
    return [
        torch.__version__,
        torch.version.git_version,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        if torch.cuda.is_initialized()
        else [],
        [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices],
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled()],
        c._get_sdp_priority_order(),
        [torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled()],
        capture.is_on(),
    ]


def _aliases(inputs: Sequence[Any]) -> list[int]:
    """For each input the first one that has its storage."""
    first: dict[int, int] = {}
    stored = [x for x in inputs if isinstance(x, torch.Tensor) and x.layout is torch.strided]
    return [first.setdefault(x.untyped_storage()._cdata, i) for i, x in enumerate(stored)]


@functools.cache
def _package() -> list[tuple[str, int, int]]:
    """This installation: what another one wrote is not read."""
    with os.scandir(os.path.dirname(__file__)) as files:
        found = [(f.name, f.stat()) for f in files if f.name.endswith((".py", ".so", ".pyd"))]
    return sorted((name, s.st_size, s.st_mtime_ns) for name, s in found)
