"""The checked-in list of operators that the sweep may find running as PyTorch's kernels: ``native.txt``."""

from __future__ import annotations

import dataclasses
import pathlib

PATH = pathlib.Path(__file__).with_name("native.txt")

HEAD = """\
# Operators that ran as PyTorch's own kernels in `make opinfo`: OPERATOR REASON-CODE WHY.
# The sweep fails when it finds one that is not here, or none where a line says there is.
# A line `graph` is a whole graph that PyTorch runs; REASON-CODE is then its kind.
# `make opinfo OPINFO=--bless` rewrites the list, and keeps what WHY says.
"""

Key = tuple[str, str]


@dataclasses.dataclass
class Difference:
    new: list[str]
    stale: list[str]


def read() -> dict[Key, str]:
    entries: dict[Key, str] = {}
    for number, line in enumerate(PATH.read_text().splitlines() if PATH.exists() else [], 1):
        if line.strip() and not line.startswith("#"):
            words = line.split(None, 2)
            if len(words) != 3:
                raise ValueError(f"{PATH.name} line {number} is not OPERATOR REASON-CODE WHY: {line}")
            if (words[0], words[1]) in entries:
                raise ValueError(f"{PATH.name} line {number} is there twice: {line}")
            entries[words[0], words[1]] = words[2]
    return entries


def compare(found: dict[Key, str], whole: bool) -> Difference:
    """What the list lacks, and (where the whole sweep ran) what it has too much."""
    listed = read()
    new = [f"{name} {code} {why}" for (name, code), why in sorted(found.items()) if (name, code) not in listed]
    stale = [f"{name} {code}" for name, code in sorted(listed) if (name, code) not in found] if whole else []
    return Difference(new, stale)


def bless(found: dict[Key, str], whole: bool) -> None:
    listed = read()
    kept = {key: why for key, why in listed.items() if key in found or not whole}
    entries = found | kept
    widths = [max(len(key[i]) for key in entries) for i in (0, 1)] if entries else [0, 0]
    lines = [f"{n:<{widths[0]}}  {c:<{widths[1]}}  {why}\n" for (n, c), why in sorted(entries.items())]
    PATH.write_text(HEAD + "".join(lines))
