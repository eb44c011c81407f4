#!/usr/bin/env python3
"""Whether Ascend's compilers take the kernels that are generated for its devices. No NPU is needed, and none is used.

usage: check.py --python PYTHON [--sample] [--models none|small|all] [--jobs N] [--devices ascend-a2,ascend-a5] [--only TEXT]

PYTHON has triton-ascend and ascendnpu-ir (requirements.txt); what runs this has permalloy. Each kernel goes from Triton to
linalg and, by BiSheng, to the form that the closed last stage takes. `--sample`: some kernels of each kind; else those of
the operator tests, the filetests and six models' training steps, small and large, too. Results are kept by digest in
target/ascend, sources of kernels that fail beside them.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import generate
from generate import Kernel

ARCHES = {"ascend-a2": "Ascend910B3", "ascend-a5": "Ascend910_9589"}
#: Seconds that a kernel may take.
LIMIT = 180.0
FOLDER = generate.ROOT / "target" / "ascend"
WORKER = Path(__file__).with_name("worker.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--models", choices=("none", "small", "all"), default="all", help="training steps to trace")
    parser.add_argument("--jobs", type=int, default=min(8, len(os.sched_getaffinity(0))))
    parser.add_argument("--devices", default=",".join(ARCHES))
    parser.add_argument("--only", help="kernels whose names have this in them")
    parser.add_argument("--fresh", action="store_true", help="compiles what was compiled before, too")
    options = parser.parse_args()
    started = time.monotonic()
    devices = options.devices.split(",")
    sizes = () if options.sample else {"none": (), "small": (False,), "all": (False, True)}[options.models]
    traced = [t for large in sizes for t in generate.trace_models(large)]
    work: list[tuple[str, str, Kernel]] = []
    for device in devices:
        work += collect(device, traced, options.sample)
    if options.only:
        work = [w for w in work if options.only in w[2].name]
    say(f"{len({(d, k) for d, _, k in work})} different kernels for {' and '.join(devices)}", started)
    with Compilers(options.python, options.jobs) as compilers:
        results = compile_all(compilers, work, fresh=options.fresh)
    say("compiled", started)
    return report(work, results)


def say(text: str, started: float) -> None:
    print(f"ascend: {text} ({time.monotonic() - started:.0f} s)", flush=True)


def collect(device: str, traced: list[generate.Traced], sample: bool) -> list[tuple[str, str, Kernel]]:
    """Device, group and kernel."""
    work = []
    for kind, kernels in generate.of_kinds(device).items():
        if not kernels:
            sys.exit(f"ascend: no kernel of the kind {kind} is generated for {device}")
        work += [(device, kind, k) for k in kernels]
    if not sample:
        work += [(device, "operator tests", k) for k in generate.of_operators(device)]
        work += [(device, "filetests", k) for k in generate.of_filetests(device)]
        for graph in traced:
            kernels, left = generate.of_model(graph, device)
            if left:
                print(f"ascend: {graph.name} on {device} leaves to PyTorch: {', '.join(left)}")
            work += [(device, "training steps", k) for k in kernels]
    return work


# --- compiling ---


class Compilers:
    """Worker processes; one that dies or takes too long is replaced, and its kernel has failed."""

    def __init__(self, python: str, jobs: int) -> None:
        self.python, self.jobs = python, jobs
        self.free: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()

    def __enter__(self) -> Compilers:
        self.folder = tempfile.TemporaryDirectory(prefix="ascend-triton-")
        for _ in range(self.jobs):
            self.free.put(self.start())
        return self

    def __exit__(self, *_: object) -> None:
        for _ in range(self.jobs):
            end(self.free.get())
        self.folder.cleanup()

    def start(self) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TRITON_INTERPRET")}
        environment["TRITON_CACHE_DIR"] = self.folder.name
        worker = subprocess.Popen(
            [self.python, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert worker.stdout is not None
        if worker.stdout.readline() != "ready\n":
            end(worker)
            sys.exit(f"ascend: {self.python} does not run {WORKER.name}")
        return worker

    def compile(self, kernel: Kernel, arch: str) -> dict[str, Any]:
        request = {
            "source": kernel.source,
            "kernel": kernel.entry,
            "signature": kernel.signature,
            "constants": kernel.constants,
            "aligned": kernel.aligned,
            "num_warps": kernel.num_warps,
            "arch": arch,
        }
        worker = self.free.get()
        timer = threading.Timer(LIMIT, worker.kill)
        timer.start()
        start = time.monotonic()
        line = ""
        assert worker.stdin is not None and worker.stdout is not None
        with contextlib.suppress(OSError):
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
        timer.cancel()
        if line:
            self.free.put(worker)
            return json.loads(line)
        end(worker)
        self.free.put(self.start())
        took = time.monotonic() - start
        why = f"took longer than {LIMIT:.0f} s" if took >= LIMIT else f"ended with status {worker.returncode}"
        return {"error": f"the compiler {why}", "stage": "unknown", "seconds": {"all": took}}


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            pipe.close()


Results = dict[tuple[str, Kernel], dict[str, Any]]


def compile_all(compilers: Compilers, work: list[tuple[str, str, Kernel]], fresh: bool) -> Results:
    """Each kernel once. What passed stays so as long as the kernel, the compilers and the worker are the same."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "passed.json"
    versions = WORKER.read_bytes() + WORKER.with_name("requirements.txt").read_bytes()
    salt = hashlib.sha256(versions).hexdigest()
    known: dict[str, Any] = {}
    if not fresh:
        with contextlib.suppress(OSError, ValueError):
            known = json.loads(kept.read_text())
    results: Results = {}
    missing = {}
    for device, _, kernel in work:
        key = f"{salt[:16]} {device} {kernel.digest()}"
        if key in known:
            results[device, kernel] = known[key]
        else:
            missing[key] = (device, kernel)
    with concurrent.futures.ThreadPoolExecutor(compilers.jobs) as threads:
        made = threads.map(lambda item: compilers.compile(item[1], ARCHES[item[0]]), missing.values())
        for done, ((key, item), result) in enumerate(zip(missing.items(), made, strict=True), 1):
            results[item] = result
            if result["error"] is None:
                known[key] = result
            if done % 50 == 0 or done == len(missing):
                keep(kept, known)
    return results


def keep(path: Path, known: dict[str, Any]) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as f:
        json.dump(known, f)
    os.replace(f.name, path)


# --- what came of it ---


def report(work: list[tuple[str, str, Kernel]], results: Results) -> int:
    groups: dict[tuple[str, str], set[Kernel]] = defaultdict(set)
    for device, group, kernel in work:
        groups[device, group].add(kernel)
        groups[device, "all"].add(kernel)
    print(f"\n{'device':<11}{'kernels':<26}{'passed':>8}{'failed':>8}{'processor, s':>14}{'slowest, s':>12}")
    for (device, group), kernels in sorted(groups.items(), key=lambda g: (g[0][0], g[0][1] == "all")):
        times = [sum(results[device, k]["seconds"].values()) for k in kernels]
        passed = sum(results[device, k]["error"] is None for k in kernels)
        print(f"{device:<11}{group:<26}{passed:>8}{len(kernels) - passed:>8}{sum(times):>14.1f}{max(times):>12.1f}")
    failed = {(d, k): r for (d, k), r in results.items() if r["error"] is not None}
    if not failed:
        return 0
    print(f"\nascend: {len(failed)} kernels fail; their sources are in {FOLDER.relative_to(generate.ROOT)}/failed")
    (FOLDER / "failed").mkdir(exist_ok=True)
    for (device, kernel), result in sorted(failed.items(), key=lambda f: (f[0][0], f[0][1].name)):
        path = FOLDER / "failed" / f"{device}-{kernel.digest()[:12]}.py"
        call = {"kernel": kernel.entry, "signature": kernel.signature, "constants": kernel.constants}
        path.write_text(f"# {kernel.name}\n# {json.dumps(call)}\n{kernel.source}")
        lines = [line for line in result["error"].splitlines() if "error:" in line] or result["error"].splitlines()
        print(f"  {device}  {kernel.name}  [{result['stage']}] {path.name}\n      {lines[0][:300] if lines else ''}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
