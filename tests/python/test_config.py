"""Each option does what its line in the README says, also inside of a compiled graph; mistakes name what was meant."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from unittest import mock

import permalloy
import pytest
import torch
import torch.nn.functional as F
from permalloy import backend
from permalloy.config import Config
from permalloy.errors import Unsupported


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    permalloy.clear_records()
    monkeypatch.setattr(backend, "_warned", set())
    with permalloy.config.patch(cache_dir=str(tmp_path)):
        yield


def mlp(x, w, b):
    return F.gelu(x @ w + b).square().mean()


def mlp_arguments():
    return torch.randn(4, 8), torch.randn(8, 5, requires_grad=True), torch.randn(5, requires_grad=True)


def smallest_of_windows(x, w):
    return (F.max_pool1d(x * w, 3) + x.cumsum(0)[:, ::3]).sum()


def compiled(fn, *args, **keywords):
    """Loss of one compiled step."""
    torch._dynamo.reset()
    loss = torch.compile(fn, backend="permalloy", **keywords)(*args)
    loss.backward()
    return loss


def no_kernel():
    def fail(text, options):
        raise Unsupported("no kernel", operator="aten.mm.default", location="model.py:3 in forward")

    return mock.patch.multiple(backend._core, compile_joint=fail, compile_graph=fail)


def decisions(operator):
    return [d for r in permalloy.records() for d in r.decisions if d["operator"] == operator]


# --- strict -----------------------------------------------------------------------------------


def test_strict_of_a_whole_graph_raises_with_operator_and_line():
    with no_kernel(), permalloy.config.patch(strict=True):
        with pytest.raises(permalloy.UnsupportedError, match=r"no kernel.*aten.mm.default.*model.py:3") as e:
            compiled(mlp, *mlp_arguments())
    assert e.value.operator == "aten.mm.default"


def test_strict_inside_of_a_graph_raises_with_operator_and_line():
    x, w = torch.randn(4, 9), torch.randn(9, requires_grad=True)
    compiled(smallest_of_windows, x, w)
    assert {d["reason"] for d in decisions("aten.cumsum.default")} == {"no-rule"}
    with permalloy.config.patch(strict=True), pytest.raises(permalloy.UnsupportedError) as e:
        compiled(smallest_of_windows, x, w)
    assert type(e.value).__name__ == "UnsupportedError" and isinstance(e.value, permalloy.PermalloyError)
    assert e.value.operator in ("aten.cumsum.default", "aten.max_pool2d_with_indices.default")
    assert e.value.location.startswith("test_config.py:") and "smallest_of_windows" in e.value.location
    assert "no-rule" in str(e.value) and "more)" in str(e.value)
    assert permalloy.records()[-1].operator == e.value.operator, "the record keeps it"


def test_strict_allows_kernels_that_are_the_best_route():
    with permalloy.config.patch(strict=True):
        compiled(lambda x, w, b: F.dropout(mlp(x, w, b) + x.sum()), *mlp_arguments())
    assert all(r.compiled for r in permalloy.records())
    assert {d["reason"] for d in decisions("aten.mm.default")} == {"library"}


def test_strict_allows_what_the_user_routed():
    x, w = torch.randn(4, 9), torch.randn(9, requires_grad=True)
    routes = {"aten.cumsum.*": "native", "aten.max_pool2d_with_indices*": "native"}
    with permalloy.config.patch(strict=True, routes=routes):
        compiled(smallest_of_windows, x, w)
    assert {d["reason"] for d in decisions("aten.cumsum.default")} == {"override"}


# --- deny -------------------------------------------------------------------------------------


def test_deny_of_a_whole_graph():
    with no_kernel(), permalloy.config.patch(deny=["native:aten.gelu.*"]):
        with pytest.raises(permalloy.UnsupportedError, match=r"native:aten.gelu.\*.*aten.gelu.default") as e:
            compiled(mlp, *mlp_arguments())
    assert e.value.location.startswith("test_config.py:")


@pytest.mark.parametrize(
    "entry, operator",
    [
        ("native:aten.mm.*", "aten.mm.default"),
        ("decompose:aten.gelu.default", "aten.gelu.default"),
        ("decompose:gelu_backward:aten.*", "aten.gelu_backward.default"),
    ],
)
def test_deny_inside_of_a_graph(entry, operator):
    with permalloy.config.patch(deny=[entry]), pytest.raises(permalloy.UnsupportedError) as e:
        compiled(mlp, *mlp_arguments())
    assert e.value.operator == operator and entry in str(e.value)
    assert e.value.location.startswith("test_config.py:") and "mlp" in e.value.location


def test_deny_of_what_does_not_happen_is_no_error():
    with permalloy.config.patch(deny=["native:aten.gelu.*", "decompose:aten.tanh.*", "native:mylib.op.*"]):
        compiled(mlp, *mlp_arguments())


@pytest.mark.parametrize("entry", ["aten.gelu.default", "nativ:aten.gelu.default", "native:"])
def test_deny_that_is_no_decision(entry):
    with pytest.raises(ValueError, match="decompose:RULE:OPERATOR"):
        permalloy.config.deny = [entry]
    assert permalloy.config.deny == []


def test_deny_of_an_operator_that_is_not_there():
    with pytest.raises(ValueError, match=r"aten.gelo.default.* nearest: aten.gelu.default"):
        permalloy.config.deny = ["native:aten.gelo.default"]
    with permalloy.config.patch(deny=["native:aten.special_bessel_j0.default"]):  # PyTorch has it, our table does not
        pass


# --- routes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["native", "decompose", "gelu", "decompose:gelu"])
def test_routes(route):
    with permalloy.config.patch(routes={"aten.gelu.default": route}):
        compiled(mlp, *mlp_arguments())
    (decision,) = decisions("aten.gelu.default")
    assert decision["reason"] == "override"
    assert decision["route"] == ("native" if route == "native" else "decompose:gelu")


def test_everything_native_by_a_pattern_gives_the_same_loss():
    args = mlp_arguments()
    want = mlp(*args)
    with permalloy.config.patch(routes={"aten.*": "native"}):
        torch.testing.assert_close(compiled(mlp, *args), want)
    assert {d["route"] for r in permalloy.records() for d in r.decisions} == {"native"}


def test_routes_that_do_not_exist():
    for routes, text in (
        ({"aten.gelo.default": "native"}, "`aten.gelo.default` matches no operator.*did you mean aten.gelu.default"),
        ({"aten.gelu.default": "gelo"}, "`gelo` is no route of aten.gelu.default; did you mean gelu?"),
        ({"aten.mm.default": "decompose"}, "no route of aten.mm.default .*native"),
        ({"aten.matmul_backward.default": "native"}, "no route of .*matmul_backward::fold"),
    ):
        with pytest.raises(ValueError, match=text):
            permalloy.config.routes = routes
    assert permalloy.config.routes == {}


def test_routes_changed_in_place_are_read_again():
    with permalloy.config.patch(routes={}):
        permalloy.config.routes["aten.gelo.default"] = "native"
        with pytest.raises(ValueError, match=r"did you mean aten.gelu.default"):
            compiled(mlp, *mlp_arguments())


# --- rewrites ---------------------------------------------------------------------------------


def attention(q, k, v):
    return ((q @ k.mT * 0.5).softmax(-1) @ v).sum()


@pytest.mark.parametrize("state, route", [("always", "rewrite:attention"), ("on", "as-written"), ("off", None)])
def test_rewrites(state, route):
    """Keys this few do not pay."""
    args = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    with permalloy.config.patch(rewrites={"attention": state}, strict=True):
        torch.testing.assert_close(compiled(attention, *args), attention(*args))
    assert {d["route"] for d in decisions("attention")} == ({route} if route else set())


def test_deny_of_what_a_rewrite_calls():
    args = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    rewrites, kernel = {"attention": "always"}, "aten._scaled_dot_product_flash_attention_for_cpu.default"
    with permalloy.config.patch(rewrites=rewrites, deny=[f"native:{kernel}"]):
        with pytest.raises(permalloy.UnsupportedError) as e:
            compiled(attention, *args)
    assert e.value.operator == kernel and "attention" in e.value.location


def test_rewrites_that_do_not_exist():
    for rewrites, text in (
        ({"atention": "off"}, "no rewrite `atention`; did you mean attention"),
        ({"attention": "never"}, "attention is on, off or always, not `never`"),
    ):
        with pytest.raises(ValueError, match=text):
            permalloy.config.rewrites = rewrites
    assert permalloy.config.rewrites == {}


# --- options of one compile, the environment, names -------------------------------------------


def test_options_of_one_compile():
    with no_kernel(), pytest.raises(permalloy.UnsupportedError):
        compiled(mlp, *mlp_arguments(), options={"strict": True})
    assert permalloy.config.strict is False
    with pytest.raises(permalloy.UnsupportedError):
        compiled(mlp, *mlp_arguments(), options={"deny": ["native:aten.mm.*"]})


@pytest.mark.parametrize(
    "options, kind, text",
    [
        ({"strickt": True}, AttributeError, "nearest: strict"),
        ({"strict": 1}, TypeError, "strict wants bool"),
        ({"routes": {"aten.gelo.default": "native"}}, ValueError, "did you mean aten.gelu.default"),
    ],
)
def test_wrong_options_of_one_compile_are_told_plainly(options, kind, text):
    with pytest.raises(kind, match=text) as e:
        compiled(mlp, *mlp_arguments(), options=options)
    assert type(e.value).__name__ == kind.__name__, "not wrapped"


def test_warn_off_is_silent():
    with no_kernel(), permalloy.config.patch(warn=False), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(mlp, *mlp_arguments())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_eager_casts_are_emulated_to_the_bit(dtype):
    def f(x, y, w):
        z = (x * y + w).exp().mul(0.3) / (1 + y.abs())
        return z, (z - x.sum(0)).sigmoid() * 2, z.amax(1)

    args = [torch.randn(40, 33, dtype=dtype, requires_grad=True) for _ in range(3)]
    exact = [a.detach().double().requires_grad_() for a in args]

    def outcome(function, args):
        outs = function(*args)
        return [*outs, *torch.autograd.grad([o.float().sum() for o in outs], args)]

    want, truth = outcome(f, args), outcome(f, exact)
    options = {"emulate_eager_casts": True, "strict": True}
    emulated = outcome(torch.compile(f, backend="permalloy", options=options), args)
    # Inside of an operator eager rounds as it likes: sigmoid's gradient does so for float16.
    for got, eager in zip(emulated, want if dtype == torch.bfloat16 else want[:3]):
        torch.testing.assert_close(got, eager, rtol=0, atol=0)
    torch._dynamo.reset()
    default = outcome(torch.compile(f, backend="permalloy"), args)
    errors = [sum((v.double() - x).abs().sum() for v, x in zip(values, truth)) for values in (default, want)]
    assert errors[0] < errors[1], "the default is the more exact one"


def test_check_verifies_after_each_pass():
    with permalloy.config.patch(check=True):
        torch.testing.assert_close(compiled(mlp, *(args := mlp_arguments())), mlp(*args))


def test_names_and_types():
    with pytest.raises(AttributeError, match="nearest: strict"):
        permalloy.config.strickt = True
    with pytest.raises(AttributeError, match="nearest: dump"):
        _ = permalloy.config.dumps
    for name, value in (("strict", 1), ("dump", 3), ("deny", "a"), ("deny", [1]), ("routes", {"a": 1})):
        with pytest.raises(TypeError, match=f"{name} wants"):
            setattr(permalloy.config, name, value)
    with pytest.raises(ValueError, match="own, torch"):
        permalloy.config.partition = "none"
    with permalloy.config.patch(dump="x"):
        assert permalloy.config.dump == "x"
    assert permalloy.config.dump is None


def fresh_process(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True)


def test_every_option_is_read_from_the_environment():
    texts = {
        "strict": "1",
        "routes": "aten.gelu.*=native, aten.matmul.default = matmul::batched",
        "rewrites": "attention=off, sdpa_mask = on",
        "deny": "native:aten.tanh.*,decompose:aten.cos.default",
        "check": "kernels",
        "emulate_eager_casts": "on",
        "chunked_loss": "64",
        "dump": "x",
        "pool_outputs": "0",
        "pause_gc": "off",
        "keep_traces": "1",
        "tune": "fast",
        "partition": "torch",
        "memory_budget": "0.25",
        "warn": "0",
        "cache_dir": "y",
    }
    assert list(texts) == Config.names()
    code = "import permalloy; print([getattr(permalloy.config, n) for n in permalloy.config.names()])"
    done = fresh_process(code, **{f"PERMALLOY_{name.upper()}": text for name, text in texts.items()})
    want = [
        True,
        {"aten.gelu.*": "native", "aten.matmul.default": "matmul::batched"},
        {"attention": "off", "sdpa_mask": "on"},
        ["native:aten.tanh.*", "decompose:aten.cos.default"],
        "kernels",
        True,
        64,
        "x",
        False,
        False,
        True,
        "fast",
        "torch",
        0.25,
        False,
        "y",
    ]
    assert (done.stdout.strip(), done.stderr) == (str(want), "")


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("STRICT", "maybe", "PERMALLOY_STRICT=maybe: neither 0 nor 1"),
        ("ROUTES", "aten.gelu.default", "'aten.gelu.default' is not OPERATOR=ROUTE"),
        ("ROUTES", "aten.gelo.default=native", "PERMALLOY_ROUTES=aten.gelo.default=native: .*mean aten.gelu.default"),
        ("REWRITES", "attention", "'attention' is not REWRITE=on"),
        ("REWRITES", "atention=off", "PERMALLOY_REWRITES=atention=off: .*mean attention"),
        ("DENY", "aten.gelu.default", "PERMALLOY_DENY=aten.gelu.default: .*native:OPERATOR"),
        ("PARTITION", "both", "PERMALLOY_PARTITION=both: .*own, torch"),
        ("ISA", "avx", "PERMALLOY_ISA is one of portable, avx2, avx512"),
        ("STRCIT", "1", "reads no variable PERMALLOY_STRCIT; nearest: PERMALLOY_STRICT"),
    ],
)
def test_mistakes_in_the_environment_are_told(name, text, said):
    done = fresh_process("import permalloy", **{f"PERMALLOY_{name}": text})
    last = " ".join(done.stderr.split())
    assert re.search(said, last), last
    assert (done.returncode == 0) == (name == "STRCIT")


def test_profile_times_kernels():
    code = """
import torch, permalloy
x = torch.randn(8, 8, requires_grad=True)
torch.compile(lambda x: (x @ x).tanh().sum(), backend="permalloy")(x).backward()
permalloy.profile()
"""
    done = fresh_process(code, PERMALLOY_PROFILE="1")
    assert "aten.mm.default" in done.stdout and "tanh" in done.stdout, done.stdout + done.stderr
    assert "set PERMALLOY_PROFILE=1" in permalloy.profile()
