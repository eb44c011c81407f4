"""PyTorch's OpInfo samples, compiled, against eager: values, gradients, types, and which operators run natively.

    python tests/opinfo/sweep.py [--ops GLOB] [--dtypes f32,bf16,i64,bool] [--sample 1/20] [--seed N] [--samples 6]

Samples run in worker processes with a limit of processor time each; a crash or a hang is one more result. Where ours differs from
eager, stock ``aot_eager`` is asked: a sample that it fails too counts for nothing. The exit status is 1 if less than
98 % of the operator variants (operator and dtype) that it passes pass, if a result is wrong, a worker crashes or hangs,
or if ``native.txt`` is not exact.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from typing import Any

import native_list

HERE = pathlib.Path(__file__).parent
WORKER = HERE / "worker.py"
STARTS = 120  # seconds of processor time a worker may take to import PyTorch and to make the samples of a variant
SHARE = 4  # a worker that sleeps, or is kept from running, may take so many times its limit on the clock
FAILURES = ("wrong", "error", "crash", "hang")
REQUIRED = 0.98

Variant = tuple[str, str]


class Worker:
    """One process at a time, started anew after a crash or a hang."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.pending = b""

    def variant(self, variant: Variant) -> list[dict[str, Any]]:
        """The results of a variant's samples."""
        results: list[dict[str, Any]] = []
        job = {
            "op": variant[0],
            "dtype": variant[1],
            "seed": self.options.seed,
            "samples": self.options.samples,
            "backend": self.options.backend,
            "reference": self.options.backend != "aot_eager",
        }
        while True:
            self._send(job | {"skip": [r["end"] for r in results]})
            lost = self._answers(results)
            if lost is None:
                return results
            results.append(lost)
            if lost["end"] is None:
                return results

    def _send(self, job: dict[str, Any]) -> None:
        if self.process is None:
            self.log = tempfile.TemporaryFile()
            command = [sys.executable, str(WORKER)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, cwd=HERE
            )
            self.pending = b""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()

    def _answers(self, results: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Collects results until the variant is done; what happened to the sample that ended the process otherwise."""
        running = None
        while True:
            limit = self.options.limit if running is not None else STARTS
            line = self._line(limit)
            if line is None:
                return self._lost(running, limit)
            answer = json.loads(line)
            if "begin" in answer:
                running = answer["begin"]
            elif "end" in answer:
                results.append(answer)
                running = None
            else:
                if answer.get("message"):
                    results.append({"end": None, "status": "no samples", "message": answer["message"]})
                return None

    def _line(self, limit: float) -> bytes | None:
        """The next line; None when the process ended or is silent for too long. What counts is its own processor time: on
        a busy machine a start may take minutes."""
        assert self.process is not None and self.process.stdout is not None
        until, began = time.monotonic() + SHARE * limit, self._busy()
        while b"\n" not in self.pending:
            if not select.select([self.process.stdout], [], [], min(1, limit))[0]:
                if time.monotonic() >= until or self._busy() - began >= limit:
                    return None
                continue
            more = self.process.stdout.read1()
            if not more:
                return None
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return line

    def _busy(self) -> float:
        """Seconds of processor time that the process has used."""
        assert self.process is not None
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _lost(self, running: int | None, limit: float) -> dict[str, Any]:
        assert self.process is not None
        try:
            status = self.process.wait(1)
            name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            self.log.seek(0)
            said = self.log.read()[-300:].decode(errors="replace").strip()
            lost = {"status": "crash", "message": f"{name}: {said}"}
        except subprocess.TimeoutExpired:
            lost = {"status": "hang", "message": f"no answer in {limit:g} s of its processor time"}
        self.stop()
        return {"end": running, **lost}

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def verdict(results: list[dict[str, Any]]) -> str:
    """One word for a variant: its worst failure, else ``pass`` if a sample passed, else ``not counted``."""
    statuses = [r["status"] for r in results]
    worst = [s for s in ("crash", "hang", "wrong", "error") if s in statuses]
    return worst[0] if worst else "pass" if "pass" in statuses else "not counted"


def all_variants() -> list[Variant]:
    """Asked of a process of its own: the sweep itself needs no PyTorch."""
    script = "import json, worker; print(json.dumps(worker.variants()), file=worker._answers)"
    done = subprocess.run([sys.executable, "-c", script], cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the sweep cannot start:\n{done.stderr[-2000:]}")
    return [tuple(v) for v in json.loads(done.stdout)]


def chosen(options: argparse.Namespace) -> list[Variant]:
    dtypes = options.dtypes.split(",")
    part, parts = options.sample
    return [
        (name, dtype)
        for name, dtype in all_variants()
        if fnmatch.fnmatchcase(name, options.ops)
        and dtype in dtypes
        and zlib.crc32(f"{options.seed} {name} {dtype}".encode()) % parts == part - 1
    ]


def run(options: argparse.Namespace, variants: list[Variant]) -> dict[Variant, list[dict[str, Any]]]:
    """Every variant's results, by as many workers as there are jobs allowed."""
    todo: queue.SimpleQueue[Variant] = queue.SimpleQueue()
    for variant in variants:
        todo.put(variant)
    results: dict[Variant, list[dict[str, Any]]] = {}

    def work() -> None:
        worker = Worker(options)
        try:
            while True:
                variant = todo.get_nowait()
                results[variant] = found = worker.variant(variant)
                word = verdict(found)
                if word in FAILURES or options.verbose:
                    first = next((r for r in found if r["status"] == word), {"end": "", "message": ""})
                    print(f"{word:<5} {variant[0]} {variant[1]} #{first['end']}: {first['message']}", flush=True)
        except queue.Empty:
            pass
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {variant: results[variant] for variant in variants}


def native_of(results: dict[Variant, list[dict[str, Any]]]) -> dict[native_list.Key, str]:
    """What ran natively, each with the detail that stands first in the alphabet."""
    found: dict[native_list.Key, str] = {}
    for samples in results.values():
        for r in samples:
            for name, code, why in r.get("native", []):
                why = " ".join(why.split())
                found[name, code] = min(found.get((name, code), why), why)
    return found


def table(results: dict[Variant, list[dict[str, Any]]]) -> str:
    words = ("pass", *FAILURES, "not counted")
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for (_, dtype), samples in results.items():
        rows[dtype][verdict(samples)] += 1
        rows["all"][verdict(samples)] += 1
    lines = [f"{'':<6}" + "".join(f"{w:>13}" for w in words)]
    lines += [f"{dtype:<6}" + "".join(f"{count[w]:>13}" for w in words) for dtype, count in rows.items()]
    return "\n".join(lines)


def write(out: pathlib.Path, results: dict[Variant, list[dict[str, Any]]], native: dict[native_list.Key, str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    entries = [{"op": o, "dtype": d, "verdict": verdict(s), "samples": s} for (o, d), s in results.items()]
    by_verdict = {
        "passed": [e for e in entries if e["verdict"] == "pass"],
        "failed": [e for e in entries if e["verdict"] in FAILURES],
        "not_counted": [e for e in entries if e["verdict"] == "not counted"],
        "native": [{"operator": n, "reason": c, "detail": why} for (n, c), why in sorted(native.items())],
    }
    for name, content in by_verdict.items():
        (out / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def fraction(text: str) -> tuple[int, int]:
    part, parts = (int(n) for n in text.split("/"))
    if not 1 <= part <= parts:
        raise argparse.ArgumentTypeError(f"{text} is not K/N with K from 1 to N")
    return part, parts


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="*", help="glob of operator names, such as 'nn.functional.*'")
    parser.add_argument("--dtypes", default="f32,bf16,i64,bool")
    parser.add_argument("--sample", type=fraction, default=(1, 1), help="K/N: the K-th of N parts of the variants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=6, help="samples of each variant")
    parser.add_argument("--limit", type=float, default=60, help="seconds of processor time a sample may take")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--backend", choices=("permalloy", "aot_eager"), default="permalloy")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "target" / "opinfo")
    parser.add_argument("--bless", action="store_true", help="rewrite native.txt")
    parser.add_argument("--verbose", action="store_true", help="a line for each variant")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    variants = chosen(options)
    if not variants:
        raise SystemExit("no operator variant matches")
    began = time.monotonic()
    results = run(options, variants)
    native = native_of(results)
    write(options.out, results, native)
    print(table(results))

    words = collections.Counter(verdict(samples) for samples in results.values())
    counted = len(results) - words["not counted"]
    share = words["pass"] / counted if counted else 1.0
    print(
        f"{words['pass']} of {counted} variants that aot_eager passes ({share:.1%}), "
        f"{sum(map(len, results.values()))} samples, {time.monotonic() - began:.0f} s; lists in {options.out}"
    )
    bad = share < REQUIRED or any(words[w] for w in ("wrong", "crash", "hang"))
    if options.backend == "permalloy":
        whole = options.ops == "*" and options.sample[1] == 1 and options.dtypes == "f32,bf16,i64,bool"
        if options.bless:
            native_list.bless(native, whole)
        difference = native_list.compare(native, whole)
        for line in difference.new:
            print(f"native, but not in {native_list.PATH.name}: {line}")
        for line in difference.stale:
            print(f"in {native_list.PATH.name}, but not native: {line}")
        bad |= bool(difference.new or difference.stale)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
