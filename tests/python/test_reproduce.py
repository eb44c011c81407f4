"""Dumped graphs and reproducers of internal errors are read again by the ``permalloy`` command."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
import warnings
from types import SimpleNamespace
from unittest import mock

import permalloy
import pytest
import torch
import torch.nn.functional as F
from permalloy import _core, backend
from torch import nn


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    permalloy.clear_records()
    monkeypatch.setattr(backend, "_warned", set())
    with permalloy.config.patch(cache_dir=str(tmp_path / "cache")), warnings.catch_warnings():
        warnings.simplefilter("ignore", permalloy.FallbackWarning)
        yield


def mlp(x, w, b):
    return F.gelu(x @ w + b).square().mean()


def mlp_arguments():
    return torch.randn(4, 8), torch.randn(8, 5, requires_grad=True), torch.randn(5, requires_grad=True)


class Transformer(nn.Module):
    def __init__(self, vocabulary=30, width=16, heads=2):
        super().__init__()
        self.heads, self.embedding = heads, nn.Embedding(vocabulary, width)
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, vocabulary)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + (weights @ v).transpose(1, 2).flatten(2)
        return F.cross_entropy(self.out(x).flatten(0, 1), targets.flatten())


# --- dumps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("partition", ["own", "torch"])
def test_dumps_of_a_training_step_are_read_again(tmp_path, dynamic, partition):
    folder = tmp_path / "dump"
    model, tokens = Transformer(), torch.randint(0, 30, (3, 7))
    with permalloy.config.patch(dump=str(folder), partition=partition):
        torch.compile(model, backend="permalloy", dynamic=dynamic)(tokens, tokens).backward()
    files = sorted(folder.iterdir())
    kinds = {"joint"} if partition == "own" else {"forward", "backward"}
    assert {f.name.split("-")[0] for f in files} == kinds
    for file in files:
        assert file.suffix == ".pm" and stat.S_IMODE(file.stat().st_mode) == 0o600
        status, text = _core.command(["explain", str(file)])
        assert status == 0 and "aten.native_layer_norm" in text and "test_reproduce.py:" in text, text
        status, text = _core.command(["opt", "--stage", "verify,compare", str(file)])
        assert status == 0 and "elements agree" in text, text


def test_a_folder_that_takes_no_dump_is_no_reason_not_to_compile(tmp_path):
    file = tmp_path / "file"
    file.touch()
    permalloy.clear_records()
    with permalloy.config.patch(dump=str(file)), pytest.warns(permalloy.FallbackWarning, match="could not be dumped"):
        y = torch.compile(lambda x: x.exp() + 1, backend="permalloy")(torch.zeros(3))
    assert torch.equal(y, torch.full((3,), 2.0))
    assert [r.compiled for r in permalloy.records()] == [True]


def test_the_same_graph_is_dumped_once(tmp_path):
    args = mlp_arguments()
    with permalloy.config.patch(dump=str(tmp_path)):
        for _ in range(2):
            torch._dynamo.reset()
            permalloy.record._graphs = 0
            torch.compile(mlp, backend="permalloy")(*args)
    assert len(list(tmp_path.glob("joint-*.pm"))) == 1


def test_the_command_is_installed():
    program = os.path.join(os.path.dirname(sys.executable), "permalloy")
    for command in ([program], [sys.executable, "-m", "permalloy"]):
        done = subprocess.run([*command, "ops", "aten.gelu.default"], capture_output=True, text=True)
        assert done.returncode == 0 and "decompose:gelu on cpu" in done.stdout, done.stderr
        done = subprocess.run([*command, "opd"], capture_output=True, text=True)
        assert done.returncode == 2 and "there is no command `opd`; did you mean ops or opt?" in done.stderr


# --- internal errors --------------------------------------------------------------------------


@pytest.fixture
def damaged_export(monkeypatch):
    """Graphs reach the compiler with an operand that nothing defines: a fault of the glue, as seen from inside."""
    sound = backend.export

    def export(*args, **keywords):
        exported = sound(*args, **keywords)
        return dataclasses.replace(
            exported, text=exported.text.replace("aten.gelu.default(%", "aten.gelu.default(%no_")
        )

    monkeypatch.setattr(backend, "export", export)


def test_internal_error_is_replayed(damaged_export):
    args = mlp_arguments()
    with permalloy.config.patch(strict=True, routes={"aten.tanh.default": "native"}):
        with pytest.raises(permalloy.InternalError, match=r"reproducer saved as .*internal-error-.*[.]pm") as e:
            torch.compile(mlp, backend="permalloy")(*args)
    path = e.value.reproducer
    assert path in str(e.value) and stat.S_IMODE(os.stat(path).st_mode) == 0o600
    text = open(path).read()
    assert '"strict": true' in text and '[["aten.tanh.default", "native"]]' in text
    status, said = _core.command(["opt", path])
    assert status == 1 and "%no_" in said and "%no_" in text.split("\n")[0], said
    # As soon as the fault is mended the same file compiles, with the same options, and gives the right numbers.
    open(path, "w").write(text.replace("%no_", "%"))
    status, said = _core.command(["opt", path])
    assert status == 0 and "elements agree with the interpreter" in said, said


def test_without_strict_the_step_runs_and_the_warning_names_the_reproducer(damaged_export):
    args = mlp_arguments()
    with pytest.warns(permalloy.FallbackWarning, match=r"internal error, please report it with .*reproducers.*[.]pm"):
        loss = torch.compile(mlp, backend="permalloy")(*args)
    torch.testing.assert_close(loss, mlp(*args))
    assert all(os.path.exists(r.reproducer) for r in permalloy.records())


def test_a_check_that_fails_while_it_runs_saves_a_reproducer(monkeypatch):
    def broken(args):
        raise permalloy.InternalError("kernel k0: bad stride")

    sound = _core.compile_joint

    def compile_joint(text, options):
        joint = sound(text, options)
        return SimpleNamespace(
            saved=joint.saved,
            saved_ints=joint.saved_ints,
            records=joint.records,
            forward=broken,
            backward=joint.backward,
        )

    with mock.patch.object(backend._core, "compile_joint", compile_joint):
        with pytest.raises(permalloy.InternalError, match="bad stride; reproducer saved as") as e:
            torch.compile(mlp, backend="permalloy")(*mlp_arguments())
    status, said = _core.command(["opt", e.value.reproducer])
    assert status == 0 and "elements agree with the interpreter" in said, "the fault was injected: the graph is sound"


def test_a_graph_that_could_not_be_exported_is_shown_as_traced(monkeypatch):
    def export(*args, **keywords):
        raise AssertionError("a fault of export")

    monkeypatch.setattr(backend, "export", export)
    with permalloy.config.patch(strict=True), pytest.raises(permalloy.InternalError, match="a fault of export") as e:
        torch.compile(mlp, backend="permalloy")(*mlp_arguments())
    assert "aten.gelu.default" in open(e.value.reproducer).read()


def test_a_reproducer_that_cannot_be_saved_is_told(tmp_path, damaged_export):
    (tmp_path / "file").write_text("")
    with permalloy.config.patch(strict=True, cache_dir=str(tmp_path / "file")):
        with pytest.warns(permalloy.FallbackWarning, match="could not be saved"):
            with pytest.raises(permalloy.InternalError) as e:
                torch.compile(mlp, backend="permalloy")(*mlp_arguments())
    assert e.value.reproducer is None
