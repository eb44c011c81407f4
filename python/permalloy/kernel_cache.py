"""Compiled kernels on disk: ``kernels/KEY`` under ``config.cache_dir``.

A file is a line with the SHA-256 of all that follows, a line of JSON, and the machine code. It is read only if it belongs to
this user, nobody else may write to it, and the digest matches; nothing in it is unpickled. Files come by atomic rename, so
that processes may share the folder. Trouble with the disk costs a compile and nothing else. An empty file ``graphs/NAME``
says that the kernels of a graph are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from typing import Any

from . import dump
from .config import config

_MAGIC = b"permalloy-kernel 1 "


def folder() -> str:
    return os.path.join(config.cache_dir, "kernels")


def load(key: str) -> tuple[Any, bytes] | None:
    """The description and the machine code kept under a key; None if there is nothing that can be trusted."""
    try:
        with open(os.path.join(folder(), key), "rb") as f:
            status = os.fstat(f.fileno())
            if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
                return None
            head, body = f.readline(200), f.read()
    except OSError:
        return None
    digest = head.removeprefix(_MAGIC).strip().decode("ascii", "replace")
    if not head.startswith(_MAGIC) or hashlib.sha256(body).hexdigest() != digest:
        return None
    meta, _, image = body.partition(b"\n")
    try:
        said = json.loads(meta)
    except ValueError:
        return None
    # The file says whose it is: one that was renamed is not taken for another.
    return (said, image) if isinstance(said, dict) and said.get("key") == key else None


def store(key: str, meta: dict[str, Any], image: bytes) -> None:
    body = json.dumps({**meta, "key": key}).encode() + b"\n" + image
    with contextlib.suppress(OSError):
        head = _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n"
        dump.write_atomically(os.path.join(folder(), key), head + body)


def has_kernels_of(graph: str) -> bool:
    """Whether all kernels of a graph were kept once. That they still are is not promised."""
    return os.path.exists(os.path.join(config.cache_dir, "graphs", graph))


def keep_graph(graph: str) -> None:
    """Notes that all kernels of a graph are kept."""
    if has_kernels_of(graph):
        return
    with contextlib.suppress(OSError):
        dump.write_atomically(os.path.join(config.cache_dir, "graphs", graph), b"")
