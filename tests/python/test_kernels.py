"""The compile pool and the cache of compiled kernels; nothing here needs a GPU."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import permalloy
import pytest
import torch
from permalloy import _core, backend, kernel_cache, kernels
from permalloy.export import export
from permalloy.worker_pool import Pool, WorkerDied

DOUBLE = (
    "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef kernel(v0, v1, v2: tl.constexpr):\n"
    "    v3 = tl.arange(0, v2)\n    tl.store(v1 + v3, tl.load(v0 + v3) * 2)\n"
)


def request(source: str = DOUBLE, block: int = 64) -> kernels.Request:
    return source, ["*fp32", "*fp32"], [block], [0, 1], 1, 1


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "_count", lambda: 1)
    with permalloy.config.patch(cache_dir=str(tmp_path)):
        yield
    kernels.stop()


@pytest.fixture
def nothing_compiles(monkeypatch):
    def fail(*_):
        raise AssertionError("a kernel was compiled")

    monkeypatch.setattr(kernels, "_compile", fail)


def file_of(key: str) -> Path:
    return Path(kernel_cache.folder()) / key


def test_a_kernel_is_compiled_once_and_kept(monkeypatch):
    first, again = kernels.compile_all([request(), request()], 90)
    key, image, entry, shared = first
    assert first == again
    assert image.startswith(b"\x7fELF") and entry == "kernel" and shared == 0
    assert [p.name for p in Path(kernel_cache.folder()).iterdir()] == [key]
    monkeypatch.setattr(kernels, "_compile", None)
    assert kernels.compile_all([request()], 90) == [first]


def test_what_does_not_compile_says_why_and_does_not_stop_the_rest():
    broken = request(DOUBLE.replace("tl.arange(0, v2)", "tl.arange(0, v9)"))
    error, good = kernels.compile_all([broken, request()], 90)
    assert isinstance(error, str) and "v9" in error
    assert good[1].startswith(b"\x7fELF")


def test_the_key_depends_on_all_that_the_code_depends_on():
    known = {kernels.key_of(request(), 90)}
    for r, capability in [(request(block=128), 90), (request(DOUBLE + "\n"), 90), (request(), 80)]:
        key = kernels.key_of(r, capability)
        assert key not in known
        known.add(key)
    source, signature, constants, _, warps, stages = request()
    assert kernels.key_of((source, signature, constants, [0], warps, stages), 90) not in known


@pytest.mark.parametrize("damage", ["cut", "bit", "digest", "empty", "magic", "renamed", "writable"])
def test_a_file_that_cannot_be_trusted_is_compiled_anew(damage):
    (good,) = kernels.compile_all([request()], 90)
    file = file_of(good[0])
    data = bytearray(file.read_bytes())
    if damage == "cut":
        data = data[:-1]
    elif damage == "bit":
        data[-100] ^= 1
    elif damage == "digest":
        data[20] ^= 1
    elif damage == "empty":
        data = bytearray()
    elif damage == "magic":
        data[0] ^= 1
    file.write_bytes(data)
    if damage == "renamed":
        (other,) = kernels.compile_all([request(block=128)], 90)
        os.replace(file_of(other[0]), file)
    if damage == "writable":
        file.chmod(0o666)
    assert kernel_cache.load(good[0]) is None
    assert kernels.compile_all([request()], 90) == [good]
    assert kernel_cache.load(good[0]) is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_disk_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with permalloy.config.patch(cache_dir=str(blocked)):
        (made,) = kernels.compile_all([request()], 90)
    assert made[1].startswith(b"\x7fELF")


def test_workers_start_for_a_graph_whose_kernels_are_not_kept(monkeypatch):
    started = []
    monkeypatch.setattr(kernels, "_workers", lambda: started.append(1))
    gm, other = torch.fx.symbolic_trace(lambda x: x.sin() + 1), torch.fx.symbolic_trace(lambda x: x.cos() + 1)
    inputs = [torch.ones(3)]
    graph = kernels.prepare(gm, inputs)
    assert kernels.prepare(gm, inputs) == graph and len(started) == 2
    kernel_cache.keep_graph(graph)
    assert kernels.prepare(gm, inputs) == graph and len(started) == 2
    for unknown in [(other, inputs), (gm, [torch.ones(4)]), (gm, [torch.ones(3, dtype=torch.float16)])]:
        kernels.prepare(*unknown)
    assert len(started) == 5
    with permalloy.config.patch(emulate_eager_casts=True):
        kernels.prepare(gm, inputs)
    assert len(started) == 6


MANY = """
import sys, permalloy
from permalloy import kernels
permalloy.config.cache_dir = sys.argv[1]
kernels._count = lambda: 1
sys.path.insert(0, sys.argv[2])
import test_kernels
made = kernels.compile_all([test_kernels.request(block=64 << i) for i in range(2)], 90)
print(*[m[0] for m in made])
kernels.stop()
"""


def test_processes_share_the_cache(tmp_path, nothing_compiles):
    command = [sys.executable, "-c", MANY, str(tmp_path), str(Path(__file__).parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [p.communicate(timeout=240)[0] for p in running]
    assert [p.returncode for p in running] == [0, 0]
    assert outputs[0] == outputs[1]
    assert sorted(p.name for p in Path(kernel_cache.folder()).iterdir()) == sorted(outputs[0].split())
    assert len(kernels.compile_all([request(block=64 << i) for i in range(2)], 90)) == 2


def test_a_worker_that_dies_is_replaced():
    pool = Pool(1)
    try:
        with pytest.raises(WorkerDied):
            pool.ask("no JSON", 60)
        answer = json.loads(pool.ask(json.dumps({"request": request(), "capability": 90}), 120))
        assert answer["entry"] == "kernel"
    finally:
        pool.close()


def test_a_worker_that_takes_too_long_is_given_up():
    pool = Pool(1)
    try:
        with pytest.raises(TimeoutError):
            pool.ask(json.dumps({"request": request(), "capability": 90}), 0.01)
        assert not pool.busy()
    finally:
        pool.close()


def test_many_threads_share_one_worker():
    pool = Pool(1)
    try:
        messages = [json.dumps({"request": request(block=32 << i), "capability": 90}) for i in range(4)]
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            answers = [json.loads(a) for a in threads.map(lambda m: pool.ask(m, 120), messages)]
        assert len({a["image"] for a in answers}) == 4
    finally:
        pool.close()


# --- kernels of graphs


def options(**changes) -> backend.Options:
    return dataclasses.replace(backend.Options.of_config(), **{"target": "cuda", "capability": 90, **changes})


SHARED = """graph "shared" inference {{
  input %{0}: f32[512, 64] strides=[64, 1] @cuda:0
  %{1}: f32[512, 64] @cuda:0 = aten.exp.default(%{0}) loc="{0}.py:1"
  %{2}: f32[512] @cuda:0 = aten.sum.dim_IntList(%{1}, [1])
  output %{2}
}}"""


def kernels_of(text: str, **changes) -> list[str]:
    made = json.loads(_core.device_kernels(text, options(**changes)))
    return [k for program in made["programs"] for step in program for k in step["kernels"]]


def test_graphs_that_differ_in_names_share_kernels():
    first = kernels_of(SHARED.format("x", "y", "z"))
    assert len(first) == 1
    assert kernels_of(SHARED.format("hidden", "w1", "w2")) == first
    assert kernels_of(SHARED.format("x", "y", "z").replace("512", "1024")) == first, (
        "only the number of programs differs"
    )
    assert kernels_of(SHARED.format("x", "y", "z").replace("64", "128")) != first


EMBEDDING = """graph "embedding" inference {
  input %g: f32[32, 16] strides=[16, 1] @cuda:0
  input %i: i64[32] strides=[1] @cuda:0
  %w: f32[100, 16] @cuda:0 = aten.embedding_dense_backward.default(%g, %i, 100, -1, false) loc="model.py:5"
  %e: f32[100, 16] @cuda:0 = aten.exp.default(%w) loc="model.py:6"
  output %e
}"""


def decisions(text: str, **changes) -> dict[str, dict]:
    made = json.loads(_core.device_kernels(text, options(**changes)))
    return {d["operator"]: d for d in made["records"]}


def test_what_depends_on_timing_is_pytorchs_where_the_user_forbids_it():
    assert decisions(EMBEDDING)["aten.embedding_dense_backward.default"]["route"].startswith("decompose")
    of = decisions(EMBEDDING, deterministic=True)
    assert of["aten.embedding_dense_backward.default"]["route"] == "native"
    assert of["aten.embedding_dense_backward.default"]["reason"] == "no-kernel"
    assert "order that depends on timing" in of["aten.embedding_dense_backward.default"]["detail"]
    assert of["aten.exp.default"]["route"].startswith("decompose"), "its neighbour has a kernel"
    with pytest.raises(permalloy.UnsupportedError, match="depends on timing"):
        decisions(EMBEDDING, deterministic=True, strict=True)


def test_an_operator_whose_kernel_does_not_compile_is_pytorchs(monkeypatch):
    real = kernels.compile_all

    def without_exp(requests, capability):
        return [
            "ptxas ran out of registers" if "tl.exp2" in r[0] else m
            for r, m in zip(requests, real(requests, capability))
        ]

    monkeypatch.setattr(kernels, "compile_all", without_exp)
    of = decisions(EMBEDDING)
    assert of["aten.exp.default"]["route"] == "native"
    assert "ptxas ran out of registers" in of["aten.exp.default"]["detail"]
    assert of["aten.embedding_dense_backward.default"]["route"].startswith("decompose")


def test_a_tensor_of_the_cpu_is_left_to_pytorch():
    text = SHARED.format("x", "y", "z").replace(" @cuda:0\n", "\n", 1)
    of = decisions(text)
    assert of["aten.exp.default"]["route"] == "native" and "is on cpu" in of["aten.exp.default"]["detail"]


def test_devices_that_are_too_old_are_told():
    with pytest.raises(permalloy.errors.Unsupported, match=r"7\.5: 8\.0 is the least"):
        _core.device_kernels(EMBEDDING, options(capability=75))


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_machine_without_a_gpu_says_so():
    with pytest.raises(permalloy.errors.Unsupported, match=r"libcuda|without CUDA"):
        _core.compile_graph(EMBEDDING, options())


MODELS = Path(__file__).resolve().parents[2] / "bench" / "models.py"
SMALL = {"VOCABULARY": 96, "WIDTH": 32, "HEADS": 2, "LAYERS": 1, "BATCH": 2, "LENGTH": 16}
SAMPLED = 4


@pytest.mark.parametrize("name", ["nanogpt", "gpt2", "llama", "bert", "resnet", "dlrm"])
def test_kernels_of_models_have_a_form_and_a_sample_compiles(name, monkeypatch):
    """Every fused step of a training step under autocast, as it would be traced on a GPU."""
    spec = importlib.util.spec_from_file_location("bench_models_small", MODELS)
    models = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = models
    spec.loader.exec_module(models)
    for key, value in SMALL.items():
        setattr(models, key, value)
    asked: list[int] = []

    def a_sample(requests, capability):
        asked.append(len(requests))
        chosen = requests[:: max(1, len(requests) // SAMPLED)]
        made = dict(zip(map(str, chosen), real(chosen, capability)))
        bad = [m for m in made.values() if isinstance(m, str)]
        assert not bad, bad
        return [made.get(str(r), ("not compiled", b"\x7fELF", "kernel", 0)) for r in requests]

    real = kernels.compile_all
    monkeypatch.setattr(kernels, "compile_all", a_sample)
    seen: list[dict] = []

    class OnCuda:
        """The compiler, asked for kernels only."""

        def __getattr__(self, name):
            return getattr(_core, name)

        def compile_joint(self, text, _):
            seen.append(json.loads(_core.device_kernels(text, options())))
            raise permalloy.errors.Unsupported("kernels only")

        def compile_graph(self, text, _):
            raise permalloy.errors.Unsupported("kernels only")

    def as_on_cuda(gm, kind, **keywords):
        with monkeypatch.context() as m:
            m.setattr("permalloy.export._device", lambda _: "@cuda:0")
            return export(gm, kind, **keywords)

    monkeypatch.setattr(backend, "_core", OnCuda())
    monkeypatch.setattr(backend, "export", as_on_cuda)
    torch.manual_seed(0)
    work = models.build(name)
    with permalloy.config.patch(warn=False), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.compile(work.loss, backend="permalloy")(*work.batch)
    assert seen and asked
    steps = [step for made in seen for program in made["programs"] for step in program]
    assert len(steps) >= 20
    left = [d for made in seen for d in made["records"] if d["reason"] == "no-kernel"]
    assert not left, left
