"""CONTRIBUTING.md's walk through adding an operator works as written: it is followed on a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"^<!-- (file|insert|run)(?:: (.*?))? -->\n```\w+\n(.*?)^```$", re.M | re.S)
CRATES = ("ir", "ops", "interp")


@pytest.fixture
def tree():
    """A copy of the crates the walk touches. Its place is always the same, so that cargo need not rebuild the rest."""
    tree = ROOT / "target" / "contributing"
    shutil.rmtree(tree, ignore_errors=True)
    for crate in CRATES:
        shutil.copytree(ROOT / "crates" / crate, tree / "crates" / crate)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy2(ROOT / name, tree / name)
    return tree


def test_adding_an_operator_as_written(tree):
    steps = STEP.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert [kind for kind, _, _ in steps] == ["file", "insert", "insert", "file", "run"]
    for kind, where, text in steps:
        if kind == "file":
            path = tree / where
            assert not path.exists(), f"{where} exists already: the walk needs an operator that is not there yet"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif kind == "insert":
            insert(tree, where, text)
        else:
            output = run(tree, text)
            assert "test rows_above_the_limit_are_scaled_down ... ok" in output, output
            assert "test other_norms_are_declined_with_the_reason ... ok" in output, output


def test_the_blocks_are_formatted(tree):
    for kind, where, text in STEP.findall((ROOT / "CONTRIBUTING.md").read_text()):
        if kind == "file":
            command = ["rustfmt", "--check", "--edition", "2024", "--config-path", str(ROOT)]
            done = subprocess.run(command, input=text, capture_output=True, text=True)
            assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"


def insert(tree: Path, where: str, text: str) -> None:
    path, side, anchor = re.fullmatch(r"(\S+) (before|after): (.*)", where).groups()
    content = (tree / path).read_text()
    assert content.count(anchor) == 1, f"{path} should hold `{anchor}` once"
    replacement = text + anchor if side == "before" else anchor + "\n" + text
    (tree / path).write_text(content.replace(anchor, replacement))


def run(tree: Path, command: str) -> str:
    """What the walk's command prints; offline, since everything it builds has been built before."""
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(ROOT / "target" / "contributing-build"),
        "CARGO_NET_OFFLINE": "true",
        # Quick to build; nothing here is slow to run.
        "CARGO_PROFILE_DEV_OPT_LEVEL": "0",
        "CARGO_PROFILE_DEV_DEBUG": "none",
    }
    done = subprocess.run(["bash", "-ec", command], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
