"""What README.md shows works as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_python_blocks_run_in_one_process_as_written():
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S))
    assert 'backend="permalloy"' in program and "permalloy.explain()" in program
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gelu" in done.stdout, done.stdout


def test_it_lists_every_option_with_its_default():
    from permalloy.config import Config

    listed = re.search(r"^\| option \| default .*?\n\n", README, re.M | re.S).group()
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", listed, re.M)
    assert [name for name, _ in rows] == Config.names()
    config = Config.__new__(Config)
    config.routes, config.rewrites, config.deny = {}, {}, []
    said = {"off": False, "on": True, "none": None}
    for name, default in rows:
        value = getattr(config, name)
        if default in said:
            assert (value or None) == (said[default] or None), name
        elif isinstance(value, float):
            assert value == float(default), name
        else:
            assert Path(value) == Path(default.strip("`")).expanduser() or value == default.strip("`"), name


def test_every_make_target_named_in_the_documentation_exists():
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))
    for name in ("README.md", "CONTRIBUTING.md", "bench/RESULTS.md"):
        for target in re.findall(
            r"make (?:PYTHON=\S+ )?([a-z-]+)", "\n".join(re.findall(r"`[^`]+`", (ROOT / name).read_text()))
        ):
            assert target in targets, f"{name} names `make {target}`"


def test_every_linked_file_exists():
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
            assert (ROOT / target).exists(), f"{name} links to {target}"
