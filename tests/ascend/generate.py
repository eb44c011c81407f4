"""Kernels as the compiler generates them for an Ascend device: of operators, of filetests, and of whole training steps."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import permalloy
import torch
from permalloy import _core, backend
from permalloy.export import export

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from kernels import cases, trace  # noqa: E402 - in the folder that the line above adds

MODELS = ("nanogpt", "gpt2", "llama", "bert", "resnet", "dlrm")
#: Folders of filetests whose graphs are legal; those of the others are wrong on purpose.
FILETESTS = ("algebra", "compare", "decompose", "interp", "lower", "partition", "random", "rewrite", "triton")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What a compiler is asked for."""

    name: str = dataclasses.field(compare=False)
    source: str
    entry: str
    signature: tuple[str, ...]
    constants: tuple[int, ...]
    #: Positions of parameters that are multiples of 16.
    aligned: tuple[int, ...]
    num_warps: int

    def digest(self) -> str:
        text = json.dumps([getattr(self, f.name) for f in dataclasses.fields(self) if f.compare])
        return hashlib.sha256(text.encode()).hexdigest()


#: Kinds of kernels, each with functions and inputs that have one. Random numbers are always PyTorch's: what is generated is
#: the rest of a dropout.
KINDS: dict[str, list[tuple[Callable[..., Any], list[torch.Tensor]]]] = {
    "pointwise": [
        (cases.bias_gelu, [cases.rand(256, 768), cases.rand(768)]),
        (cases.adamw, [cases.rand(4096), cases.rand(4096), cases.rand(4096), cases.rand(4096).abs()]),
        (cases.transposed, [cases.rand(128, 256), cases.rand(256, 128)]),
    ],
    "row reduction": [(lambda x: (x.sum(1), x.amax(1)), [cases.rand(64, 512)])],
    "row reduction in a loop": [(lambda x: (x.sum(1), x.amax(1)), [cases.rand(64, 20000)])],
    "column reduction": [(lambda x: (x.sum(0), x.amax(0)), [cases.rand(2000, 300)])],
    "sum of all": [(cases.sums, [cases.rand(3000, 90)])],
    "norm with gradients": [
        (cases.layer_norm, [cases.rand(512, 256), cases.rand(256), cases.rand(256), cases.rand(512, 256)]),
        (cases.layer_norm, [cases.rand(40, 8200), cases.rand(8200), cases.rand(8200), cases.rand(40, 8200)]),
        (cases.batch_norm, [cases.rand(8, 16, 32, 32), cases.rand(16), cases.rand(16), cases.rand(8, 16, 32, 32)]),
    ],
    "softmax": [(cases.softmax, [cases.rand(128, 1000), cases.rand(128, 1000)])],
    "softmax in a loop": [
        (cases.softmax, [cases.rand(16, 9001), cases.rand(16, 9001)]),
        (cases.long_softmax, [cases.rand(9, 8300)]),
    ],
    "cross-entropy": [
        (cases.cross_entropy, [cases.rand(64, 1000), cases.ints(1000, 64)]),
        (cases.cross_entropy, [cases.rand(9, 32000), cases.ints(32000, 9)]),
    ],
    "gather": [
        (cases.taken, [cases.rand(100, 16), cases.ints(16, 100)]),
        (cases.picked_columns, [cases.rand(12, 30), cases.ints(12, 17)]),
    ],
    "scatter": [
        (cases.embedding, [cases.rand(100, 16), cases.ints(100, 5, 8), cases.rand(5, 8, 16)]),
        (cases.added_at, [cases.rand(20, 8), cases.ints(20, 12), cases.rand(12, 8)]),
    ],
    "concatenation": [(cases.concatenated, [cases.rand(64, 48), cases.rand(64, 48)])],
    "masked slices": [(cases.masked_slices, [cases.rand(64, 90)])],
    "dropout": [(cases.dropped_out, [cases.rand(64, 90), cases.rand(64, 90)])],
}


def of_kinds(device: str) -> dict[str, list[Kernel]]:
    """The kernels of each kind: in f32 with the sizes known, and in bf16 for any sizes."""
    return {kind: [k for f, x in fs for k in of_function(f, x, device, kind)] for kind, fs in KINDS.items()}


def of_operators(device: str) -> Iterator[Kernel]:
    """Those of the operator tests."""
    for f, inputs in [*cases.CASES, *cases.ASCEND]:
        yield from of_function(f, inputs, device, cases.name_of((f, inputs)))
    x = cases.rand(33, 70)
    for name, f in {**cases.FUNCTIONS, **cases.BINARY}.items():
        inputs = [x, x.flip(0)] if name in cases.BINARY else [x]
        yield from of_function(lambda *a, f=f: f(*a), inputs, device, name)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
        y = cases.ints(100, 33, 70).to(dtype)
        yield from of_function(cases.integers, [y, y + 1, y % 7], device, f"integers-{dtype}")
    yield from of_function(cases.bools, [x > 0, x > 1], device, "bools")
    yield from of_function(cases.special, [x, x.flip(0)], device, "special")


def of_function(f: Callable[..., Any], inputs: list[torch.Tensor], device: str, name: str) -> Iterator[Kernel]:
    for dtype, dynamic in ((torch.float32, False), (torch.bfloat16, True)):
        if dtype == torch.bfloat16 and not any(x.is_floating_point() for x in inputs):
            continue
        programs, _ = trace.programs(f, cases.in_dtype(inputs, dtype), device, dynamic=dynamic)
        yield from of_programs(programs, f"{name}, {str(dtype).removeprefix('torch.')}")


def of_filetests(device: str) -> Iterator[Kernel]:
    for path in sorted((ROOT / "tests" / "filetests").glob("*/*.pm")):
        if path.parent.name in FILETESTS:
            try:
                programs = json.loads(_core.triton_sources(path.read_text(), device))
            except (ValueError, permalloy.PermalloyError):
                continue  # a test of an error
            yield from of_programs(programs, f"{path.parent.name}/{path.stem}")


def of_programs(programs: list[dict[str, Any]], name: str) -> Iterator[Kernel]:
    """What has no Triton form for the device is left to PyTorch, and is not here."""
    for program in programs:
        for step in program["steps"]:
            for launch in step.get("launches", ()):
                if "kernel" not in launch:
                    continue
                arguments = launch["args"]
                yield Kernel(
                    f"{name}: {launch['kernel']}",
                    launch["source"],
                    launch["kernel"],
                    tuple(a["type"] for a in arguments),
                    tuple(value for _, value in launch["constants"]),
                    tuple(i for i, a in enumerate(arguments) if "memory" in a or a["multiple_of_16"]),
                    launch["num_warps"],
                )


# --- training steps ---


@dataclasses.dataclass
class Traced:
    """A joint graph in text form, its tensors on an NPU."""

    name: str
    text: str


class Done(BaseException):
    """Ends a step once its graph is known."""


def trace_models(large: bool) -> Iterator[Traced]:
    """The six models' joint graphs in f32, and under autocast to bf16."""
    for name in MODELS:
        models = load_models()
        torch.manual_seed(0)
        work = models.build(name, large)
        for autocast in (False, True):
            label = f"{name}{' large' if large else ''}{' autocast' if autocast else ''}"
            yield Traced(label, joint_graph(work, autocast))


def load_models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_models", ROOT / "bench" / "models.py")
    assert spec is not None and spec.loader is not None
    models = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = models
    spec.loader.exec_module(models)
    return models


def joint_graph(work: Any, autocast: bool) -> str:
    found: list[str] = []

    class Compiler:
        """Takes the text of the joint graph, and stops there."""

        def __getattr__(self, name: str) -> Any:
            return getattr(_core, name)

        def compile_joint(self, text: str, _: Any) -> Any:
            found.append(text)
            raise Done

    torch._dynamo.reset()
    with (
        mock.patch("permalloy.export._device", lambda _: "@npu:0"),
        mock.patch.object(backend, "_core", Compiler()),
        mock.patch.object(backend, "export", export),
        permalloy.config.patch(warn=False),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast),
    ):
        try:
            torch.compile(work.loss, backend="permalloy")(*work.batch)
        except Done:
            return found[0]
    raise AssertionError("no joint graph was compiled")


def of_model(traced: Traced, device: str) -> tuple[list[Kernel], list[str]]:
    """The kernels of a training step as it would run on the device; operators that are PyTorch's for want of a form."""
    asked: dict[str, Kernel] = {}

    def record(requests: list[Any], *_: Any) -> list[Any]:
        keys = []
        for source, signature, constants, aligned, num_warps, _stages in requests:
            kernel = Kernel("", source, "kernel", tuple(signature), tuple(constants), tuple(aligned), num_warps)
            key = kernel.digest()
            asked[key] = kernel
            keys.append((key, b"not compiled", "kernel", 0))
        return keys

    options = dataclasses.replace(backend.Options.of_config(), target=device)
    with mock.patch("permalloy.kernels.compile_all", record):
        made = json.loads(_core.device_kernels(traced.text, options))
    named: dict[str, Kernel] = {}
    for program in made["programs"]:
        for step in program:
            for key in step["kernels"]:
                named.setdefault(key, dataclasses.replace(asked[key], name=f"{traced.name}: {step['step']}"))
    left = sorted({d["operator"] for d in made["records"] if d["reason"] == "no-kernel"})
    return list(named.values()), left
