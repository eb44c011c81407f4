"""The OpInfo sweep (`make opinfo`): that it sees what it has to see, and a fixed sample of it."""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

SWEEP = pathlib.Path(__file__).parents[1] / "opinfo"
sys.path.insert(0, str(SWEEP))

import judge  # noqa: E402
import native_list  # noqa: E402
import sweep  # noqa: E402


def test_a_sample_of_the_sweep_passes(tmp_path):
    pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")
    command = [sys.executable, str(SWEEP / "sweep.py"), "--sample", "1/40", "--seed", "1", "--samples", "3"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(100.0%)" in done.stdout, done.stdout
    assert all((tmp_path / f"{name}.json").exists() for name in ("passed", "failed", "not_counted", "native"))


# --- the judge


def judged(got, eager, exact, **how):
    judge.compare("y", got, eager, exact, **how)


def test_an_error_above_twice_eagers_is_wrong():
    exact = torch.tensor([1.0, 3.0], dtype=torch.float64)
    eager = torch.tensor([1.0, 3.0001])
    judged(torch.tensor([1.0001, 3.0]), eager, exact)
    with pytest.raises(judge.Wrong, match=r"error 0.0003, allowed 0.0002"):
        judged(torch.tensor([1.0003, 3.0]), eager, exact)


def test_a_unit_in_the_last_place_is_allowed_and_no_more():
    exact = torch.tensor([1.0, 3.0], dtype=torch.float64)
    judged(torch.tensor([1.0, 3.0 + 2**-22]), exact.float(), exact)
    with pytest.raises(judge.Wrong, match=r"error 4.77e-07, allowed 2.38e-07"):
        judged(torch.tensor([1.0, 3.0 + 2**-21]), exact.float(), exact)


def test_each_value_of_an_elementwise_operator_counts_for_itself():
    exact = torch.tensor([1.0, 1024.0], dtype=torch.float64)
    got = torch.tensor([1.0 + 2**-20, 1024.0])
    judged(got, exact.float(), exact)
    with pytest.raises(judge.Wrong, match=r"error 9.54e-07, allowed 1.19e-07"):
        judged(got, exact.float(), exact, each=True)


def test_eager_that_is_exact_by_luck_is_measured_nearby():
    """The sum of three numbers: eager's is exact here, and off by a unit of the largest term nearby."""
    exact = torch.tensor([0.5], dtype=torch.float64)
    got, eager = torch.tensor([0.5 + 2**-21]), torch.tensor([0.5])
    nearby = [(torch.tensor([0.5 + 2**-22]), exact)]
    judged(got, eager, exact, near=lambda: nearby)
    with pytest.raises(judge.Wrong, match=r"eager's 0, unit 5.96e-08"):
        judged(got, eager, exact)

    def cancels(x):
        return [x * 1.1 + 1.0 - 1.0]

    expected = judge.Expected.of(cancels, [torch.tensor([0.3])], 0)
    pairs = expected.near(0, 0)
    assert len(pairs) == judge.NEAR
    assert all(0 < abs(eager.double() - exact) < 2**-22 for eager, exact in pairs)


def test_a_reference_that_is_no_double_is_no_more_exact_than_eager():
    eager = torch.tensor([1.0, 3.0])
    judged(torch.tensor([1.0, 3.0 + 2**-20]), eager, eager)
    with pytest.raises(judge.Wrong, match=r"error 3.81e-06, allowed 2.86e-06"):
        judged(torch.tensor([1.0, 3.0 + 2**-18]), eager, eager)


def test_special_values_are_eagers_or_those_of_the_double():
    nan, inf = float("nan"), float("inf")
    judged(torch.tensor([nan, inf]), torch.tensor([nan, inf]), None)
    with pytest.raises(judge.Wrong, match="where eager has"):
        judged(torch.tensor([inf]), torch.tensor([nan]), torch.tensor([nan], dtype=torch.float64))
    judged(torch.tensor([3e38]), torch.tensor([inf]), torch.tensor([3e38], dtype=torch.float64).float().double())


@pytest.mark.parametrize(
    "got, said",
    [
        (torch.zeros(2, dtype=torch.float64), "dtype"),
        (torch.zeros(1, 2), "shape"),
        (None, "None in compiled only"),
        (torch.tensor([0.0, 1.0]), "error 1"),
    ],
)
def test_types_and_values_are_compared(got, said):
    eager = torch.tensor([0.0, 2.0])
    with pytest.raises(judge.Wrong, match=said):
        judged(got, eager, eager.double())


def test_integers_are_equal():
    with pytest.raises(judge.Wrong, match="1 differ"):
        judged(torch.tensor([1, 2]), torch.tensor([1, 3]), None)


def test_strides_are_eagers():
    call, inputs = judge.call_of(torch.t, argparse.Namespace(
        input=torch.randn(2, 3), args=(), kwargs={}, output_process_fn_grad=lambda y: y
    ))  # fmt: skip
    expected = judge.Expected.of(call, inputs, 0)
    got = judge.train(call, inputs, 0)
    expected.judge(got)
    got.outputs = [y.contiguous() for y in got.outputs]
    with pytest.raises(judge.Wrong, match="strides"):
        expected.judge(got)


# --- workers


def test_crashes_and_hangs_are_results(tmp_path, monkeypatch):
    """A worker that dies on sample 1 and is silent on sample 3: the others still run."""
    worker = tmp_path / "worker.py"
    worker.write_text(
        textwrap.dedent("""
        import json, os, signal, sys, time
        for line in sys.stdin:
            job = json.loads(line)
            for i in range(7):
                if i in job["skip"]:
                    continue
                print(json.dumps({"begin": i}), flush=True)
                if i == 1:
                    os.kill(os.getpid(), signal.SIGSEGV)
                if i == 3:
                    time.sleep(60)
                while i == 5:
                    pass
                if i == 6:
                    time.sleep(1.5)  # no hang: it does not use its processor time
                print(json.dumps({"end": i, "status": "pass", "message": "", "native": []}), flush=True)
            print(json.dumps({"done": True}), flush=True)
        """)
    )
    monkeypatch.setattr(sweep, "WORKER", worker)
    options = argparse.Namespace(seed=0, samples=5, backend="permalloy", limit=1.0, jobs=1, verbose=False)
    results = sweep.run(options, [("add", "f32"), ("mul", "f32")])
    for samples in results.values():
        assert [(r["end"], r["status"]) for r in samples] == [
            (0, "pass"),
            (1, "crash"),
            (2, "pass"),
            (3, "hang"),
            (4, "pass"),
            (5, "hang"),
            (6, "pass"),
        ]
        assert "SIGSEGV" in samples[1]["message"]
        assert sweep.verdict(samples) == "crash"


# --- the list of native operators


def test_the_list_is_exact_or_the_sweep_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(native_list, "PATH", tmp_path / "native.txt")
    native_list.PATH.write_text("# note\naten.mm.default library products\naten.sort.default no-rule sorts\n")
    found = {("aten.mm.default", "library"): "bound by arithmetic", ("aten.mm.default", "rule-declined"): "empty"}
    difference = native_list.compare(found, whole=True)
    assert difference.new == ["aten.mm.default rule-declined empty"]
    assert difference.stale == ["aten.sort.default no-rule"]
    assert native_list.compare(found, whole=False).stale == []
    native_list.bless(found, whole=True)
    assert native_list.read() == {
        ("aten.mm.default", "library"): "products",
        ("aten.mm.default", "rule-declined"): "empty",
    }
    native_list.PATH.write_text("aten.mm.default library\n")
    with pytest.raises(ValueError, match="line 1"):
        native_list.read()


def test_every_entry_of_the_list_has_its_reason():
    assert len(native_list.read()) > 100
