"""Worker processes that answer a line with a line.

They are programs of their own, neither forks (the parent may hold a device and threads) nor children that import the
caller's main module again.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

_SCRIPT = Path(__file__).with_name("kernel_worker.py")
#: The script's folder must not be where it looks for modules: this package's have ordinary names.
_STUB = "import sys; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))"


class WorkerDied(Exception):
    """A process ended without an answer."""


class Pool:
    """``size`` processes, started at once and waited for by nobody. Safe to use from many threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._asked, self._closed = 0, False
        # Triton's own cache is the pool's for as long as it lives: what is kept longer is checked elsewhere.
        self._folder = tempfile.mkdtemp(prefix="permalloy-triton-")
        for _ in range(size):
            self._free.put(Worker(self._folder))

    def ask(self, message: str, limit: float) -> str:
        """A worker's answer; ``TimeoutError`` after ``limit`` seconds, :class:`WorkerDied` when it ended."""
        with self._lock:
            self._asked += 1
        worker = self._free.get()
        try:
            return worker.ask(message, limit)
        except BaseException:
            worker.kill()
            worker = Worker(self._folder)
            raise
        finally:
            with self._lock:
                self._asked -= 1
                closed = self._closed
            if closed:
                worker.kill()
            else:
                self._free.put(worker)

    def busy(self) -> bool:
        with self._lock:
            return self._asked > 0

    def close(self) -> None:
        """Ends the processes; one that works ends when it is done."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._free.get_nowait().kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class Worker:
    """One process."""

    def __init__(self, folder: str) -> None:
        environment = {**os.environ, "TRITON_CACHE_DIR": folder}
        environment.pop("TRITON_INTERPRET", None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _STUB, str(_SCRIPT), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
        )

    def ask(self, message: str, limit: float) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            data = memoryview(message.encode() + b"\n")
            while data:
                data = data[self._process.stdin.write(data) :]
        except OSError as e:
            raise WorkerDied(str(e)) from e
        return self._line(self._process.stdout.fileno(), time.monotonic() + limit).decode()

    def _line(self, handle: int, deadline: float) -> bytes:
        parts: list[bytes] = []
        with selectors.DefaultSelector() as ready:
            ready.register(handle, selectors.EVENT_READ)
            while not (parts and parts[-1].endswith(b"\n")):
                left = deadline - time.monotonic()
                if left <= 0 or not ready.select(left):
                    raise TimeoutError
                part = os.read(handle, 1 << 20)
                if not part:
                    raise WorkerDied(f"status {self._process.wait()}")
                parts.append(part)
        return b"".join(parts)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
