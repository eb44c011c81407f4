"""Kept traces: a graph that was traced before gives what it would give if it were traced again, or is traced again."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import textwrap

import permalloy
import pytest
import torch
import torch.nn.functional as F
from permalloy import _core, backend, capture
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def keeping(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    permalloy.clear_records()
    with permalloy.config.patch(keep_traces=True):
        yield


def run(fn, *args, **options):
    """Result and gradients of a fresh compile."""
    torch._dynamo.reset()
    permalloy.clear_records()
    torch.manual_seed(0)
    leaves = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    out = torch.compile(fn, backend="permalloy", options=options or None)(*leaves)
    wanted = [a for a in leaves if a.requires_grad]
    return [out.detach(), *leaves, *(torch.autograd.grad(out, wanted) if wanted else ())]


def kept():
    """For each graph since the last run, whether its trace was kept."""
    return [r.kept for r in permalloy.records()]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def arguments():
    return torch.randn(16, 24), torch.randn(24, 8, requires_grad=True), torch.randn(8, requires_grad=True)


def loss(x, w, b):
    return F.cross_entropy(F.gelu(x @ w + b), torch.tensor([1, 3] * 8))


def test_a_second_compile_reads_the_trace_and_gives_the_same():
    args = arguments()
    first = run(loss, *args)
    assert kept() == [False]
    second = run(loss, *args)
    assert kept() == [True] and same(first, second)
    (record,) = permalloy.records()
    assert record.compiled and record.kind == "joint" and record.nodes > 10 and record.decisions
    assert "traced by an earlier process" in permalloy.explain(loss)


def test_another_process_reads_it(tmp_path):
    code = """
        import torch, permalloy
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
        torch.compile(lambda x: model(x).square().mean(), backend="permalloy")(torch.randn(4, 8)).backward(retain_graph=True)
        print([r.kept for r in permalloy.records()], [p.grad.sum().item() for p in model.parameters()])
    """
    env = {**os.environ, "PERMALLOY_KEEP_TRACES": "1"}
    outs = [
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=env).stdout
        for _ in range(2)
    ]
    assert outs[0].startswith("[False]") and outs[1].startswith("[True]")
    assert outs[0].split("]", 1)[1] == outs[1].split("]", 1)[1]


def test_inference_and_retained_backward():
    args = arguments()
    for want in (False, True):
        torch._dynamo.reset()
        permalloy.clear_records()
        step = torch.compile(loss, backend="permalloy")
        out = step(*args)
        one = torch.autograd.grad(out, args[1:], retain_graph=True)
        assert same(one, torch.autograd.grad(out, args[1:]))
        with torch.no_grad():
            assert torch.equal(step(*args), out)
        assert kept() == [want, want]


def test_random_numbers_are_drawn_anew():
    def dropped(x, w):
        return (F.dropout(x @ w, 0.5) ** 2).sum()

    args = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
    first = run(dropped, *args)
    second = run(dropped, *args)
    assert kept() == [True] and same(first, second)
    torch._dynamo.reset()
    step = torch.compile(dropped, backend="permalloy")
    assert step(*args) != step(*args)


def test_options_shapes_settings_and_constants_tell_traces_apart():
    args = arguments()
    run(loss, *args)
    run(loss, *args, emulate_eager_casts=True)
    assert kept() == [False]
    run(loss, torch.randn(16, 24), args[1].detach(), args[2])
    assert kept() == [False], "w needs no gradient"
    run(loss, args[0].t().contiguous().t(), *args[1:])
    assert kept() == [False], "other strides"
    run(lambda x, w, b: F.cross_entropy(F.gelu(x @ w + b), torch.tensor([1, 4] * 8)), *args)
    assert kept() == [False], "another constant"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = run(loss, *args)
        assert kept() == [False]
    with torch.autocast("cpu", dtype=torch.float16):
        run(loss, *args)
        assert kept() == [False]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(run(loss, *args), low) and kept() == [True]
    run(loss, *args)
    assert kept() == [True]


def test_captured_matmul_is_another_trace(monkeypatch):
    args = arguments()
    run(loss, *args)
    monkeypatch.setattr(capture, "is_on", lambda: True)
    run(loss, *args)
    assert kept() == [False]


def test_a_written_input_is_written_and_saved_as_it_was():
    def step(x, w):
        y = x.sin() * w
        with torch.no_grad():
            x.add_(1)
        return (y * y).sum()

    args = torch.randn(8), torch.randn(8, requires_grad=True)
    first = run(step, *args)
    second = run(step, *args)
    assert kept() == [True] and same(first, second) and torch.equal(first[1], args[0] + 1)


def test_inputs_that_share_memory_are_traced_apart():
    def step(x, y):
        x.mul_(2)
        return (x + y).sum()

    x = torch.ones(4)
    for _ in range(2):
        torch._dynamo.reset()
        assert torch.compile(step, backend="permalloy")(x.clone(), x.clone()) == 12
    for _ in range(2):
        torch._dynamo.reset()
        whole = torch.ones(8)
        assert torch.compile(step, backend="permalloy")(whole[:4], whole[2:6]) == 14


@torch.library.custom_op("permalloy_test::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@scaled.register_fake
def _(x):
    return torch.empty_like(x)


scaled.register_autograd(lambda ctx, g: g * 2)


def test_not_kept_where_a_trace_depends_on_more():
    x = torch.randn(8, 8, requires_grad=True)
    held = torch.randn(8)
    cases = {
        "an operator with a derivative of its own": lambda x: scaled(x).sum(),
        "checkpointing": lambda x: checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False).sum(),
    }
    for name, fn in cases.items():
        first = run(fn, x)
        second = run(fn, x)
        assert same(first, second) and not any(kept()), name
    run(lambda x: (x * held).sum(), x)
    torch._dynamo.reset()
    step = torch.compile(lambda x: x.sin().sum(), backend="permalloy", dynamic=True)
    for n in (4, 5):
        step(torch.randn(n, requires_grad=True))
    permalloy.clear_records()
    torch._dynamo.reset()
    step(torch.randn(6, requires_grad=True))
    assert kept() == [False], "symbolic sizes"


def test_a_tensor_that_the_function_holds_is_read_live():
    held = torch.ones(8)
    x = torch.ones(8, requires_grad=True)
    assert run(lambda x: (x * held).sum(), x)[0] == 8
    held.mul_(3)
    assert run(lambda x: (x * held).sum(), x)[0] == 24


def test_a_damaged_file_and_a_failing_compile_mean_tracing_again(tmp_path, monkeypatch):
    args = arguments()
    first = run(loss, *args)
    (file,) = glob.glob(str(tmp_path / "aotautograd" / "*" / "*"))
    whole = open(file, "rb").read()
    for broken in (b"", whole[: len(whole) // 2], b"x" + whole):
        open(file, "wb").write(broken)
        assert same(run(loss, *args), first) and kept() == [False]
        for each in glob.glob(str(tmp_path / "aotautograd" / "*" / "*")):
            os.unlink(each)
        open(file, "wb").write(whole)

    real, calls = _core.compile_joint, []

    def fails_once(text, options):
        calls.append(text)
        if len(calls) == 1:
            raise RuntimeError("not now")
        return real(text, options)

    monkeypatch.setattr(_core, "compile_joint", fails_once)
    assert same(run(loss, *args), first) and kept() == [False]


def test_not_kept_where_others_may_write(tmp_path):
    args = arguments()
    run(loss, *args)
    for folder in (tmp_path, tmp_path / "aotautograd"):
        os.chmod(folder, 0o777)
        run(loss, *args)
        assert kept() == [False], "what others may have written is not read"
        os.chmod(folder, 0o700)
    run(loss, *args)
    assert kept() == [True]


def test_switched_off_nothing_is_written(tmp_path):
    with permalloy.config.patch(keep_traces=False):
        run(loss, *arguments())
    assert not os.path.exists(tmp_path / "aotautograd")


def test_a_module_that_is_no_graph_is_compiled_and_not_kept():
    class Plain(torch.nn.Module):
        def forward(self, x):
            return [(x * 2).sum()]

    x = torch.ones(4, requires_grad=True)
    (out,) = backend.backend(Plain(), [x])(x)
    assert out == 8 and torch.autograd.grad(out, x)[0].eq(2).all() and kept() == [False]


def test_other_backends_keep_pytorchs_key():
    args = arguments()
    run(loss, *args)
    torch._dynamo.reset()
    assert torch.compile(loss, backend="aot_eager")(*args).isfinite()
