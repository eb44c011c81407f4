"""The glue: export, fallback, the cut, records, options, and what the extension module does at a call."""

from __future__ import annotations

import json
import re
import threading
import time
import warnings
from unittest import mock

import glue_engine
import permalloy
import pytest
import torch
import torch.nn.functional as F
from permalloy import _core, backend, callbacks
from permalloy.errors import Unsupported
from permalloy.export import export
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    torch._dynamo.reset()
    torch.manual_seed(0)
    permalloy.clear_records()
    monkeypatch.setattr(backend, "_warned", set())
    with permalloy.config.patch(cache_dir=str(tmp_path)), warnings.catch_warnings():
        warnings.simplefilter("ignore", permalloy.FallbackWarning)
        yield


def texts(fn, *args, dynamic=None, backward=True) -> dict[str, str]:
    """Text of each graph that compiling ``fn`` makes, by kind."""
    found: dict[str, str] = {}

    def keep(kind):
        def compiler(gm, _):
            found[kind] = export(gm, kind).text
            return lambda args: gm(*args)

        return compiler

    def partition(joint, inputs, *, num_fwd_outputs, **keywords):
        found["joint"] = export(joint, "joint", forward_outputs=num_fwd_outputs).text
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **keywords)

    def boxed(kind):
        make = keep(kind)

        def compiler(gm, inputs):
            run = make(gm, inputs)
            run._boxed_call = True
            return run

        return compiler

    compile_all = aot_autograd(
        fw_compiler=boxed("forward"),
        bw_compiler=boxed("backward"),
        inference_compiler=boxed("inference"),
        partition_fn=partition,
        decompositions={},
        keep_inference_input_mutations=True,
    )
    out = torch.compile(fn, backend=compile_all, dynamic=dynamic, fullgraph=True)(*args)
    leaves = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
    if backward and leaves:
        torch.autograd.backward(leaves, [torch.ones_like(t) for t in leaves])
    return found


# A reader of the form, strict enough to find what export gets wrong.
SIZE = r"[\w\s+*,()-]+"
TYPE = (
    rf"(?:f64|f32|bf16|f16|i64|i32|i16|i8|u8|bool|c64)\[(?:{SIZE})?\](?: strides=\[(?:{SIZE})?\])?(?: @\w+(?::\d+)?)?"
)
LINE = {
    "symbol": r"  symbol \w+ hint=-?\d+ range=\[-?\d+, -?\d+\]",
    "input": rf"  input (?:%\w+: {TYPE}(?: role=tangent)?|{SIZE})",
    "output": rf"  output (?:%\w+|none|{SIZE})",
}
CALL = re.compile(rf'  ((?:(?:%\w+: {TYPE}|_)(?:, )?)+) = (\w+\.\w+\.\w+)\((.*)\)(?: loc="[^"]*")?')


def well_formed(text: str) -> None:
    """Each line has the form's shape, each value is defined once and before it is read."""
    lines = text.rstrip("\n").split("\n")
    assert re.fullmatch(r'graph "\w+" (?:joint\(forward_outputs=\d+\)|forward|backward|inference) \{', lines[0])
    assert lines[-1] == "}"
    defined: set[str] = set()
    for line in lines[1:-1]:
        word = line.split()[0]
        if word in LINE:
            assert re.fullmatch(LINE[word], line), line
            made, read = (re.findall(r"%(\w+)", line), []) if word == "input" else ([], re.findall(r"%(\w+)", line))
        else:
            match = CALL.fullmatch(line)
            assert match, line
            made = re.findall(r"%(\w+):", match[1])
            read = re.findall(r"%(\w+)", re.sub(r'"[^"]*"', "", match[3]))
        assert not defined.intersection(made), line
        assert defined.issuperset(read), line
        defined.update(made)


class Block(nn.Module):
    def __init__(self, d=16, heads=2):
        super().__init__()
        self.heads, self.ln, self.ln2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.fc, self.out = (
            nn.Linear(a, b) for a, b in ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.ln(x)).split(c, dim=2))
        att = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
        mask = torch.ones(t, t, dtype=torch.bool).tril().logical_not()
        y = att.masked_fill(mask, float("-inf")).softmax(-1) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary=50, d=16, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, d), nn.Embedding(32, d)
        self.blocks, self.ln = nn.Sequential(*[Block(d) for _ in range(layers)]), nn.LayerNorm(d)
        self.head = nn.Linear(d, vocabulary, bias=False)

    def forward(self, x):
        return self.head(self.ln(self.blocks(self.tok(x) + self.pos(torch.arange(x.shape[1])))))


def gpt_loss():
    model = GPT()
    return lambda x: F.cross_entropy(model(x).flatten(0, 1), x.flatten())


# --- export -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_gpt_graphs_are_well_formed(dynamic):
    found = texts(gpt_loss(), torch.randint(0, 50, (4, 7)), dynamic=dynamic)
    assert set(found) == {"joint", "forward", "backward"}
    for text in found.values():
        well_formed(text)
    joint = found["joint"]
    assert "aten.native_layer_norm_backward.default" in joint
    assert 'loc="test_glue.py:' in joint
    assert joint.count("role=tangent") == 1
    assert bool(re.search(r"^  symbol s\d+ hint=7 range=\[2, \d+\]$", joint, re.M)) is dynamic
    assert bool(re.search(r"^  input s\d+$", joint, re.M)) is dynamic
    assert "sym_size" not in joint


def test_arguments_of_every_kind():
    def fn(x):
        a = torch.full((3, 4), float("-inf"), dtype=torch.bfloat16)
        b = F.gelu(x, approximate="tanh").to(torch.float16).contiguous(memory_format=torch.channels_last)
        c = torch.div(x, 3, rounding_mode="floor").sum(dim=[0, -1], keepdim=True)
        return a, b, c, x.clamp(min=None, max=2.0), x[:, ::2, None]

    found = texts(fn, torch.randn(2, 4, 3, 5))["inference"]
    well_formed(found)
    for part in (
        "[3, 4], -inf, dtype=bf16",
        'approximate="tanh"',
        'rounding_mode="floor"',
        "memory_format=memory_format:channels_last",
        "[0, -1], true",
        "none, 2.0",
        "device=@cpu",
    ):
        assert part in found, part
    assert "f16[2, 4, 3, 5] strides=[60, 1, 20, 4]" in found


def test_results_that_nobody_reads_have_names_and_types():
    found = texts(lambda x: (x.topk(2)[0], x.split(2, 1)[1], torch.var_mean(x, 0)[1]), torch.randn(3, 4))["inference"]
    well_formed(found)
    assert re.search(r"%getitem: f32\[3, 2\], %\w+: i64\[3, 2\] = aten.topk.default\(%arg0_1, 2\)", found)
    assert re.search(
        r"%\w+: f32\[3, 2\] strides=\[4, 1\], %\w+: f32\[3, 2\] strides=\[4, 1\] = aten.split.Tensor", found
    )


def test_results_that_are_not_there():
    x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3, requires_grad=True)
    found = texts(lambda x, w: F.conv2d(x, w), x, w)["joint"]
    well_formed(found)
    assert re.search(r"  _, %\w+: f32\[3, 2, 3, 3\], _ = aten.convolution_backward.default\(", found)
    assert "output none" in found


def test_batch_norm_writes_its_statistics():
    model = nn.BatchNorm1d(4)
    found = texts(model, torch.randn(3, 4))["joint"]
    well_formed(found)
    assert len(re.findall(r"aten.copy_.default\(%primals_\d+, %\w+\)", found)) == 3


def test_optimizer_step():
    params = [torch.randn(3, 4), torch.randn(5)]
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in params]

    def adamw(params, grads, state):
        for p, g, (m, v) in zip(params, grads, state):
            p.mul_(1 - 1e-3)
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)

    found = texts(adamw, params, [torch.randn_like(p) for p in params], state)["inference"]
    well_formed(found)
    assert found.count("aten.copy_.default(") == 6
    assert "aten.lerp.Scalar(" in found and ", 1e-08)" in found and ", -0.001)" in found


def test_outputs_that_are_inputs_views_and_sizes():
    def fn(x, w):
        y = x * w
        return x, y, y.t(), x.shape[0] * 2 + 1, w

    found = texts(fn, torch.randn(3, 4, requires_grad=True), torch.randn(4), dynamic=True)
    for text in found.values():
        well_formed(text)
    assert re.search(r"  output 2\*s\d+ \+ 1\n", found["joint"])


def test_constants_become_trailing_inputs():
    model = nn.Linear(3, 3)

    def fn(x):
        return model(x) * torch.tensor([1.0, 2.0, 3.0])

    found = texts(fn, torch.randn(2, 3))["joint"]
    well_formed(found)
    inputs = [line for line in found.split("\n") if line.startswith("  input ")]
    assert "_tensor_constant" in inputs[-1] and "f32[3]" in inputs[-1]


def test_size_expressions():
    def fn(x, y):
        n, m = x.shape
        a = x.reshape(-1)[: n * m // 3 * 2 + 1]
        b = x.new_ones(max(n, m), min(n, m) % 5 + 1, n**2)
        return a, b, y[: y.shape[0] // 2].reshape(-1)

    found = texts(fn, torch.randn(8, 7), torch.randn(12, 3), dynamic=True)["inference"]
    well_formed(found)
    assert "floordiv(" in found and "mod(" in found and "max(" in found and "min(" in found
    assert re.search(r"s\d+\*s\d+", found)


@pytest.mark.parametrize(
    "fn, reason",
    [
        (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "graph inside of the graph"),
        (lambda x: x + torch.tensor([1], dtype=torch.complex64).real, None),
    ],
)
def test_what_the_form_cannot_hold(fn, reason):
    if reason is None:
        well_formed(texts(fn, torch.randn(3))["inference"])
        return
    with pytest.raises(Exception, match=reason):
        texts(fn, torch.randn(3))


def test_unsupported_names_operator_and_line():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2)
    node = graph.call_function(torch.ops.aten.mul.Tensor, (x, 1j))
    node.meta.update(val=torch.empty(2), stack_trace='  File "a/b/model.py", line 12, in forward\n    x * 1j\n')
    graph.output((node,))
    with pytest.raises(Unsupported, match="argument of type complex") as e:
        export(torch.fx.GraphModule({}, graph), "inference")
    assert (e.value.operator, e.value.location) == ("aten.mul.Tensor", "model.py:12 in forward")


def test_ten_thousand_nodes_in_time():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    with torch._subclasses.FakeTensorMode():
        x.meta["val"] = torch.empty(32, 64)
        for i in range(10_000):
            x = graph.call_function(torch.ops.aten.add.Tensor, (x, 1.5), {"alpha": 2})
            x.meta["val"] = torch.empty(32, 64 + i % 7)
            x.meta["stack_trace"] = f'  File "model.py", line {i % 100}, in forward\n    x = x + 1.5\n'
    graph.output((x,))
    gm = torch.fx.GraphModule({}, graph)
    start = time.perf_counter()
    exported = export(gm, "inference")
    assert exported.nodes == 10_000
    assert time.perf_counter() - start < 2  # it takes about 0.1 s


# --- running ----------------------------------------------------------------------------------


def step(fn, *args):
    """Output and gradients of one training step."""
    leaves = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    out = fn(*leaves)
    out.backward()
    return [out.detach(), *[a.grad for a in leaves]]


def same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


def mlp(x, w, b):
    return F.gelu(x @ w + b).square().mean()


MLP = (torch.randn(4, 8), torch.randn(8, 5, requires_grad=True), torch.randn(5, requires_grad=True))


def test_falls_back_with_a_record_and_one_warning():
    with mock_core(unsupported="no such thing"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        same(step(torch.compile(mlp, backend="permalloy"), *MLP), step(mlp, *MLP))
        same(step(torch.compile(lambda *a: mlp(*a) * 2, backend="permalloy"), *MLP), step(lambda *a: mlp(*a) * 2, *MLP))
    ours = [w for w in seen if w.category is permalloy.FallbackWarning]
    assert len(ours) == 1 and "no such thing" in str(ours[0].message)
    found = permalloy.records()
    assert [r.kind for r in found] == ["joint", "forward", "backward"] * 2
    assert all(not r.compiled and r.reason == "no such thing" for r in found)


def test_the_warning_points_into_the_users_code():
    with mock_core(unsupported="no such thing"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.compile(mlp, backend="permalloy")(*MLP)
    assert {w.filename for w in seen if w.category is permalloy.FallbackWarning} == {__file__}


def mock_core(unsupported):
    def fail(text, options):
        raise Unsupported(unsupported, operator="aten.mm.default", location="model.py:3 in forward")

    return mock.patch.multiple(backend._core, compile_joint=fail, compile_graph=fail)


@pytest.mark.parametrize("typed", [False, True])
def test_own_cut_of_a_joint_graph(typed):
    loss = gpt_loss()
    with glue_engine.installed(typed) as engine:
        compiled = torch.compile(loss, backend="permalloy")
        x = torch.randint(0, 50, (4, 7))
        model = loss.__closure__[0].cell_contents
        loss(x).backward()
        want = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        compiled(x).backward()
        assert engine.joints == 1 and engine.graphs == 0
    for p, w in zip(model.parameters(), want):
        torch.testing.assert_close(p.grad, w)


@pytest.mark.parametrize("typed", [False, True])
def test_own_cut_with_dynamic_sizes(typed):
    def fn(x, w):
        n = x.shape[0]
        return (x @ w).reshape(n * 5).cumsum(0).sum() * n

    with glue_engine.installed(typed) as engine:
        compiled = torch.compile(fn, backend="permalloy", dynamic=True)
        for n in (3, 6, 9):
            args = torch.randn(n, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
            same(step(compiled, *args), step(fn, *args))
        assert engine.joints == 1


def test_own_cut_dropout_batch_norm_and_constants():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5))
    x = torch.randn(4, 8)

    def fn(x):
        return (model(x) * torch.arange(16.0) * torch.tensor(2.0)).sum()

    def run(f):
        model.load_state_dict(start)
        model.zero_grad()
        torch.manual_seed(3)
        out = f(x)
        out.backward()
        return [out.detach(), *[p.grad.clone() for p in model.parameters()], *[b.clone() for b in model.buffers()]]

    start = {k: v.clone() for k, v in model.state_dict().items()}
    with glue_engine.installed() as engine:
        same(run(torch.compile(fn, backend="permalloy")), run(fn))
        assert engine.joints == 1


def test_checkpointing_is_cut_by_torch():
    from torch.utils.checkpoint import checkpoint

    def fn(x, w, b):
        return checkpoint(lambda x: F.gelu(x @ w + b), x, use_reentrant=False).sum()

    with glue_engine.installed() as engine:
        same(step(torch.compile(fn, backend="permalloy"), *MLP), step(fn, *MLP))
        assert engine.joints == 0 and engine.graphs == 2
    assert "checkpointing" in permalloy.records()[0].reason


def test_saved_tensor_hooks_around_a_stub():
    kept = []

    def pack(t):
        kept.append(t.shape)
        return t

    with glue_engine.installed():
        compiled = torch.compile(mlp, backend="permalloy")
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            got = step(compiled, *MLP)
    same(got, step(mlp, *MLP))
    assert kept


def test_no_grad_and_inference_mode():
    compiled = torch.compile(mlp, backend="permalloy")
    with torch.no_grad():
        torch.testing.assert_close(compiled(*MLP), mlp(*MLP))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(*MLP), mlp(*MLP))
    assert {r.kind for r in permalloy.records()} == {"inference"}


def test_threads_and_reentrancy():
    compiled = torch.compile(mlp, backend="permalloy")
    want = step(mlp, *MLP)
    step(compiled, *MLP)
    failures = []

    def work():
        try:
            for _ in range(5):
                same(step(compiled, *MLP), want)
        except BaseException as e:  # noqa: BLE001 - whatever a thread meets fails the test
            failures.append(e)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures

    x = MLP[1].detach().clone().requires_grad_()
    again = []

    def hook(_):
        with torch.enable_grad():
            again.append(step(compiled, *MLP))  # a compiled step inside of a backward

    x.register_hook(hook)
    compiled(MLP[0], x, MLP[2]).backward()
    same(again[0], want)


@pytest.mark.parametrize("cut", ["own", "torch"])
def test_backward_reads_inputs_as_they_were_before_a_write(cut):
    def fn(x, y, w):
        loss = ((x + w) ** 2).sum() + (y[1:].sin() * w).sum()
        x.mul_(2)
        y.zero_()
        return loss

    def run(f):
        x, y, w = torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4), torch.ones(4, requires_grad=True)
        f(x, y, w).backward()
        return x, y, w.grad

    with permalloy.config.patch(partition=cut):
        same(run(torch.compile(fn, backend="permalloy")), run(fn))


@pytest.mark.parametrize("dynamic", [False, True])
def test_backward_twice(dynamic):
    with glue_engine.installed():
        compiled = torch.compile(mlp, backend="permalloy", dynamic=dynamic)
        step(compiled, *MLP)
        w = MLP[1].detach().clone().requires_grad_()
        out = compiled(MLP[0], w, MLP[2])
        out.backward(retain_graph=True)
        first = w.grad.clone()
        out.backward()
    torch.testing.assert_close(w.grad, 2 * first)


def test_none_gradients():
    def fn(x, w, b):
        return (x * w).sum() + 0 * x.sum()

    x, w, b = (torch.randn(3, requires_grad=True) for _ in range(3))
    torch.compile(fn, backend="permalloy")(x, w, b).backward()
    assert b.grad is None and w.grad is not None


# --- records and options ----------------------------------------------------------------------


def test_explain_by_function(capsys):
    torch.compile(mlp, backend="permalloy")(*MLP)
    torch.compile(lambda x: x.sin(), backend="permalloy")(MLP[0])
    assert len(json.loads(permalloy.explain(json=True))) == len(permalloy.records())
    text = permalloy.explain(mlp)
    assert text in capsys.readouterr().out
    assert "joint" in text and "inference" not in text


def test_the_backend_is_an_entry_point():
    assert "permalloy" in torch._dynamo.list_backends()


# --- the extension module ---------------------------------------------------------------------


def test_call_keeps_identity_order_and_integers():
    call = _core.passthrough([False, True, False, True], [2, 1, None, 0])
    a, b = nn.Parameter(torch.randn(3)), torch.randn(2)
    args = [a, 5, b, 7]
    out = call(args)
    assert args == [] and out[0] is b and out[1] == 5 and out[2] is None and out[3] is a


def test_call_frees_what_it_consumed():
    call = _core.passthrough([False, False], [1])
    import weakref

    a, b = torch.randn(3), torch.randn(3)
    gone = weakref.ref(b)
    out = call([a, b])
    del b
    assert gone() is not None
    del out
    assert gone() is None


def test_call_checks_its_arguments():
    call = _core.passthrough([False, True], [0])
    with pytest.raises(TypeError, match="expected 2 arguments, got 1"):
        call([torch.ones(1)])
    with pytest.raises(TypeError):
        call([torch.ones(1), "x"])
    with pytest.raises(RuntimeError, match="not there"):
        _core.passthrough([False], [3])([torch.ones(1)])


def test_calls_from_threads():
    call = _core.passthrough([False] * 20, list(range(20)))
    tensors = [torch.randn(2) for _ in range(20)]
    wrong = []

    def work():
        for _ in range(500):
            if any(a is not b for a, b in zip(call(list(tensors)), tensors)):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_host_cost_of_a_call():
    call = _core.passthrough([False] * 100, [0])
    tensors = [torch.randn(2) for _ in range(100)]
    best = float("inf")
    for _ in range(2000):
        args = list(tensors)
        start = time.perf_counter()
        call(args)
        best = min(best, time.perf_counter() - start)
    assert best < 100e-6  # about 10 µs


def test_callbacks():
    assert callbacks.schema("aten.mm.default") == "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    assert callbacks.schema("aten.no_such_operator.default") is None
    a = torch.randn(3, 4)
    (out,) = callbacks.call_op("aten.add.Tensor", [a, 2], {"alpha": 3})
    torch.testing.assert_close(out, a + 6)
    assert len(callbacks.call_op("aten.split.Tensor", [a, 2, 1], {})) == 2
    assert callbacks.constant("dtype", "bf16") is torch.bfloat16
    assert callbacks.constant("memory_format", "channels_last") is torch.channels_last


def test_matmul_backward_runs_natively():
    a, b = torch.randn(2, 1, 3, 4, requires_grad=True), torch.randn(5, 4, 6, requires_grad=True)
    grad = torch.randn(2, 5, 3, 6)
    want = torch.autograd.grad(a @ b, (a, b), grad)
    args = [grad, a.detach(), b.detach(), [True, True]]
    same(callbacks.call_op("aten.matmul_backward.default", args, {}), want)


def test_operator_table():
    table = permalloy.operators()
    assert {"name", "cost", "effect", "rules", "native", "doc"} <= set(table[0])
    assert permalloy.__version__ == _core.version()
