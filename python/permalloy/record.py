"""What was decided, graph by graph: the values behind :func:`explain`."""

from __future__ import annotations

import dataclasses
import json as json_module
import threading
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass
class Record:
    """One graph that came from AOTAutograd."""

    graph: str  #: name, unique in the process
    kind: str  #: joint, forward, backward or inference
    compiled: bool
    reason: str | None = None  #: why it runs natively
    operator: str | None = None  #: the operator that is the reason
    location: str | None = None  #: and its line in the user's model
    origin: tuple[str, int, str] | None = None  #: file, line and function of the user that the graph starts in
    nodes: int = 0
    kept: bool = False  #: an earlier process traced it (``config.keep_traces``)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)  #: time by stage
    decisions: list[dict[str, Any]] = dataclasses.field(default_factory=list)  #: routes taken, from the compiler
    reproducer: str | None = None
    #: worst errors of each fused kernel against its unfused graph, with ``config.check = "kernels"``
    kernels: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        took = sum(self.seconds.values())
        native = sum(d["route"] == "native" for d in self.decisions)
        if self.compiled:
            how = f"compiled, {native} of them as PyTorch's kernels"
        else:  # a joint graph is only cut: what becomes of its halves stands in their own records
            how = "cut by PyTorch" if self.kind == "joint" else "native"
        traced = ", traced by an earlier process" if self.kept else ""
        lines = [f"{self.graph} ({self.kind}, {self.nodes} operators, {took * 1e3:.0f} ms{traced}): {how}"]
        if self.reason:
            lines.append("  " + self.reason + at(self.operator, self.location))
        if self.reproducer:
            lines.append(f"  reproducer: {self.reproducer}")
        lines += self._routes()
        lines += map(_kernel_line, self.kernels)
        return "\n".join(lines)

    def _routes(self) -> list[str]:
        """A line for each decision, with those that say the same taken together, in the order of the graph."""
        counts: dict[str, int] = {}
        for d in self.decisions:
            ours = d["route"].startswith("decompose:") and d["reason"] != "measured"
            why = d["reason"] if ours or not d.get("detail") else f"{d['reason']}, {d['detail']}"
            line = f"{d['operator']} -> {d['route']}: {why}{at(None, d.get('location'))}"
            counts[line] = counts.get(line, 0) + 1
        return [f"  {n:>3} x {line}" for line, n in counts.items()]


def _kernel_line(check: dict[str, Any]) -> str:
    if check["unchecked"]:
        return f"  kernel {check['kernel']}: not compared, {check['unchecked']}"
    worst = f"worst error {check['worst_absolute']:.2e} absolute, {check['worst_relative']:.2e} relative"
    return f"  kernel {check['kernel']}: {worst} of {check['elements']} elements; {check['reproducer']}"


def at(operator: str | None, location: str | None) -> str:
    return (f" [{operator}]" if operator else "") + (f" at {location}" if location else "")


_lock = threading.Lock()
_records: list[Record] = []
_graphs = 0


def next_name() -> str:
    """A new graph name: graph0, graph1, …"""
    global _graphs
    with _lock:
        _graphs += 1
        return f"graph{_graphs - 1}"


def add(record: Record) -> None:
    with _lock:
        _records.append(record)


def add_kernel(record: Record, check: dict[str, Any]) -> None:
    """Keeps the worst of a kernel's comparisons."""
    with _lock:
        for i, known in enumerate(record.kernels):
            if known["kernel"] == check["kernel"]:
                worse = check["worst_absolute"] > known["worst_absolute"] or check["wrong"]
                record.kernels[i] = check if worse else known
                return
        record.kernels.append(check)


def records() -> list[Record]:
    """Records of all graphs of this process, oldest first."""
    with _lock:
        return list(_records)


def clear_records() -> None:
    """Forgets all records."""
    with _lock:
        _records.clear()


def explain(fn: Callable[..., Any] | None = None, *, json: bool = False) -> str:
    """Prints and returns what became of each graph of this process, or of those that start in ``fn``.

    With ``json=True`` the text is a JSON list of the records, and nothing is printed.
    """
    found = [r for r in records() if fn is None or _starts_in(r, fn)]
    if json:
        return json_module.dumps([dataclasses.asdict(r) for r in found], indent=1)
    text = "\n".join(map(str, found)) or "no graph was compiled"
    print(text)
    return text


def _starts_in(record: Record, fn: Any) -> bool:
    fn = getattr(fn, "_torchdynamo_orig_callable", fn)
    fn = getattr(fn, "_orig_mod", fn)
    fn = getattr(fn, "forward", fn)
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    if code is None:
        raise TypeError(f"explain wants a function or a module, got {type(fn).__name__}")
    if record.origin is None:
        return False
    file, line, _ = record.origin
    last = max((at for _, _, at in code.co_lines() if at is not None), default=code.co_firstlineno)
    return file == code.co_filename and code.co_firstlineno <= line <= last
