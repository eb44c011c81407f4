"""``config.check = "kernels"`` runs each fused kernel beside its unfused graph."""

from __future__ import annotations

import permalloy
import pytest
import torch
import torch.nn.functional as F
from permalloy import _core, backend


@pytest.fixture(autouse=True)
def fresh(tmp_path):
    permalloy.clear_records()
    with permalloy.config.patch(check="kernels", strict=True, cache_dir=str(tmp_path)):
        yield


def block(x, w, g, b, buffer):
    buffer.mul_(0.9).add_(x.mean(0).detach(), alpha=0.1)
    h = F.gelu(F.layer_norm(x, x.shape[-1:], g, b) @ w)
    return (h.softmax(-1) * x[:, :5]).sum(), torch.cat([h, h.tanh()], 1)


def arguments(dtype=torch.float32, rows=6):
    leaves = [torch.randn(s, dtype=dtype, requires_grad=True) for s in ((rows, 8), (8, 5), (8,), (8,))]
    return [*leaves, torch.zeros(8, dtype=dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
def test_each_kernel_is_reported_with_its_worst_errors_and_a_reproducer(dtype, dynamic):
    out, rest = torch.compile(block, backend="permalloy", dynamic=dynamic)(*arguments(dtype))
    (out + rest.sum()).backward()
    checks = [k for r in permalloy.records() for k in r.kernels]
    compared = [k for k in checks if not k["unchecked"]]
    assert len(compared) >= 3 and sum(k["elements"] for k in compared) > 100
    assert not any(k["wrong"] for k in checks)
    limit = 1e-5 if dtype == torch.float32 else 0.2
    assert all(k["worst_absolute"] < limit for k in compared)
    assert any(k["worst_absolute"] > 0 for k in compared), "float32 has rounding errors"
    shown = permalloy.explain()
    for k in compared:
        assert f"kernel {k['kernel']}: worst error {k['worst_absolute']:.2e} absolute" in shown
        assert k["reproducer"] in shown
        status, said = _core.command(["opt", "--stage", "verify,compare", k["reproducer"]])
        assert status == 0 and "elements agree" in said, said
        assert "// input %" in open(k["reproducer"]).read()


def test_many_runs_keep_the_worst():
    step = torch.compile(lambda x: x.exp().sin() * 3, backend="permalloy")
    for scale in (0.001, 3.0, 0.001):
        step(torch.randn(100) * scale)
    (check,) = permalloy.records()[0].kernels
    assert check["worst_absolute"] > 1e-8 and check["elements"] == 100


def test_a_kernel_that_is_wrong_is_an_internal_error_that_names_its_reproducer(monkeypatch):
    sound = _core.compile_graph

    class Wrong:
        """A compiled graph one of whose kernels has an element beyond its bound."""

        def __init__(self, compiled):
            self.compiled, self.records = compiled, compiled.records

        def __call__(self, args):
            return self.compiled(args)

        def kernel_checks(self):
            text = self.compiled.kernel_checks()
            return text.replace('"wrong":null', '"wrong":"element 0 is 2.0, not 1.0; 1e-7 off are allowed"')

    monkeypatch.setattr(backend._core, "compile_graph", lambda text, options: Wrong(sound(text, options)))
    with pytest.raises(permalloy.InternalError, match=r"kernel k0_exp: element 0 is 2[.]0, not 1[.]0") as e:
        torch.compile(lambda x: x.exp(), backend="permalloy")(torch.randn(3))
    assert "prim.exp" in open(e.value.reproducer).read()
    assert permalloy.records()[0].kernels[0]["wrong"]
