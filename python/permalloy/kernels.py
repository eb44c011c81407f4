"""Compiles generated kernels: Triton source to machine code, in worker processes, with what was compiled kept on disk.

A request is what ``CompileRequest`` in ``crates/triton`` holds. It has no names of the user's graph in it, so that equal
layers, and equal models, find each other's kernels. Nothing here needs a device.
"""

from __future__ import annotations

import atexit
import base64
import concurrent.futures
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from . import kernel_cache
from .config import config
from .worker_pool import Pool, WorkerDied

#: Seconds that one kernel may take.
LIMIT = 180.0
#: Seconds without work after which the workers end.
IDLE = 60.0
_FORMAT = 1

Request = tuple[str, list[str], list[int], list[int], int, int]
#: Key, machine code, name of the function, bytes of shared memory.
Binary = tuple[str, bytes, str, int]

_lock = threading.Lock()
_pool: Pool | None = None
_idle: threading.Timer | None = None


def prepare(gm: fx.GraphModule, inputs: Sequence[Any]) -> str:
    """Starts the workers, so that they are ready when the first kernels come, and returns at once. A graph whose kernels
    were all kept before is taken to need none, which would compete with its tracing. The result names the graph.
    """
    nodes = [(n.op, getattr(n.target, "__name__", str(n.target)), len(n.all_input_nodes)) for n in gm.graph.nodes]
    types = [(str(x.dtype), str(x.shape)) if isinstance(x, torch.Tensor) else type(x).__name__ for x in inputs]
    graph = hashlib.sha256(json.dumps([nodes, types, repr(config), _FORMAT, *_versions()]).encode()).hexdigest()
    if not kernel_cache.has_kernels_of(graph):
        with contextlib.suppress(OSError):  # told when a kernel is asked for
            _workers()
    return graph


def stop() -> None:
    """Ends the workers; the next request starts new ones."""
    global _pool
    with _lock:
        pool, _pool = _pool, None
    if pool is not None:
        pool.close()


def compile_all(requests: list[Request], capability: int) -> list[Binary | str]:
    """The kernels, in the order of the requests; in place of one that cannot be compiled, the reason."""
    keys = [key_of(r, capability) for r in requests]
    found: dict[str, Binary | str] = {}
    missing: dict[str, Request] = {}
    for key, request in zip(keys, requests, strict=True):
        if key in found or key in missing:
            continue
        kept = kernel_cache.load(key)
        binary = None if kept is None else _binary(key, *kept)
        if binary is None:
            missing[key] = request
        else:
            found[key] = binary
    if missing:
        pool = _workers()
        with concurrent.futures.ThreadPoolExecutor(pool.size, "permalloy-kernels") as threads:
            made = threads.map(lambda item: _compile(pool, *item, capability), missing.items())
            found.update(zip(missing, made, strict=True))
        _workers()  # counts the idle time from here
    return [found[key] for key in keys]


def key_of(request: Request, capability: int) -> str:
    """A digest of all that the machine code depends on."""
    versions = [_FORMAT, *_versions()]
    return hashlib.sha256(json.dumps([request, capability, versions]).encode()).hexdigest()


@functools.cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton"))


def _compile(pool: Pool, key: str, request: Request, capability: int) -> Binary | str:
    message = json.dumps({"request": request, "capability": capability})
    answer: dict[str, Any] = {}
    for attempt in (1, 2):
        try:
            answer = json.loads(pool.ask(message, LIMIT))
            break
        except TimeoutError:
            return f"Triton took longer than {LIMIT:.0f} s"
        except WorkerDied as e:
            # Once may be the system's doing: out of memory, say.
            if attempt == 2:
                return f"the compiler's process ended: {e}"
    if "error" in answer:
        return answer["error"]
    image = base64.b64decode(answer["image"])
    meta = {"entry": answer["entry"], "shared_bytes": answer["shared_bytes"]}
    kernel_cache.store(key, meta, image)
    return key, image, meta["entry"], meta["shared_bytes"]


def _binary(key: str, meta: Any, image: bytes) -> Binary | None:
    if not isinstance(meta, dict):
        return None
    entry, shared = meta.get("entry"), meta.get("shared_bytes")
    return (key, image, entry, shared) if isinstance(entry, str) and type(shared) is int else None


def _workers() -> Pool:
    """The pool, started if need be; from now on it has its idle time before it."""
    global _pool, _idle
    with _lock:
        if _pool is None:
            _pool = Pool(_count())
            atexit.register(stop)
        if _idle is not None:
            _idle.cancel()
        _idle = threading.Timer(IDLE, _stop_if_idle)
        _idle.daemon = True
        _idle.start()
        return _pool


def _stop_if_idle() -> None:
    with _lock:
        busy = _pool is not None and _pool.busy()
    if busy:
        _workers()
    else:
        stop()


def _count() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(usable, 32))
