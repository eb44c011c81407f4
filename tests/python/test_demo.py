"""The demo runs, prints its table, and notices wrong gradients."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "demo"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The demo at its smallest."""
    program = [sys.executable, str(DEMO / "main.py")]
    return subprocess.run(
        [*program, "--steps", "2", "--batch", "2", "--write", "8", *arguments], capture_output=True, text=True
    )


@pytest.mark.parametrize("backend", ["permalloy", "aot_eager"])
def test_prints_one_table_and_text(backend):
    done = run("--backend", backend)
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("eager", backend):
        assert (
            len(
                re.findall(
                    rf"^{row} +\d+\.\d\d +[\d.]+ +[\d,]+ +[\d,]+ +\d+\.\d{{4}} +\d\.\de-\d\d$", done.stdout, re.M
                )
            )
            == 1
        )
        assert f"--- {row} writes ---\ndef " in done.stdout
    assert "gradients agree" in done.stdout
    assert ("operators by route: " in done.stdout) == (backend == "permalloy")
    assert "\r" not in done.stderr, "no progress bar where there is no terminal"


def test_a_backend_that_fails_fails_the_demo():
    done = run("--backend", "no_such_backend")
    assert done.returncode != 0
    assert "the no_such_backend run did not finish" in done.stderr


def test_wrong_and_missing_gradients_are_noticed():
    import torch

    sys.path.insert(0, str(DEMO))
    try:
        from main import gradient_error
    finally:
        sys.path.remove(str(DEMO))
    exact = {"gradients": {"a": torch.ones(3, dtype=torch.float64), "b": torch.ones(3, dtype=torch.float64)}}
    assert gradient_error({"gradients": {"a": torch.ones(3), "b": torch.ones(3)}}, exact)[1] == 0
    name, error = gradient_error({"gradients": {"a": torch.ones(3), "b": torch.tensor([1.0, 1.0, 1.1])}}, exact)
    assert name == "b" and 0.05 < error < 0.06
    assert gradient_error({"gradients": {"a": torch.ones(3)}}, exact) == ("b", float("inf"))
    assert gradient_error({"gradients": {"a": torch.ones(3), "b": torch.full((3,), float("nan"))}}, exact)[1] == float(
        "inf"
    )
