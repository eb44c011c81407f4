"""Dumped graphs and reproducers: content-addressed files, written by atomic rename, readable by their owner alone."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
import warnings
from typing import Any

from .config import config
from .errors import FallbackWarning


def write(folder: str, stem: str, suffix: str, text: str) -> str:
    """Writes ``STEM-DIGEST.SUFFIX`` unless it is there; returns its path."""
    data = text.encode()
    path = os.path.join(folder, f"{stem}-{hashlib.sha256(data).hexdigest()[:16]}.{suffix}")
    if os.path.exists(path):
        return path
    write_atomically(path, data)
    return path


def write_atomically(path: str, data: bytes) -> None:
    """Writes a file that its owner alone may read, so that no other process ever sees a part of it."""
    folder, name = os.path.split(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}-")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def graph(text: str, kind: str) -> None:
    """Dumps a graph's text if the user asked for it; a folder that takes none is no reason not to compile."""
    if not config.dump:
        return
    try:
        write(config.dump, kind, "pm", text)
    except OSError as e:
        warnings.warn(f"permalloy: a graph could not be dumped: {e}", FallbackWarning, stacklevel=2)


def kernel(text: str) -> str | None:
    """Saves the unfused graph of a kernel with its arguments; None if it could not be saved."""
    return _saved("kernel", text)


def reproducer(text: str, options: Any, message: str) -> str | None:
    """Saves what is needed to see an internal error again (``permalloy opt FILE``); None if it could not be saved."""
    lines = [f"// internal error: {line}" for line in message.splitlines()[:20]]
    lines.append(f"// options: {json.dumps(dataclasses.asdict(options), sort_keys=True)}")
    return _saved("internal-error", "\n".join(lines) + f"\n{text}")


def _saved(stem: str, text: str) -> str | None:
    try:
        return write(os.path.join(config.cache_dir, "reproducers"), stem, "pm", text)
    except OSError as e:
        warnings.warn(f"permalloy: a reproducer could not be saved: {e}", FallbackWarning, stacklevel=2)
        return None
