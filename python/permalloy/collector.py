"""Python's garbage collector rests while Dynamo compiles: what tracing allocates lives on, and each full collection walks all of
PyTorch to find that out.
"""

from __future__ import annotations

import gc
from typing import Any

from torch._dynamo.callback import callback_handler

from .config import config

_paused = False


def _pause(_: Any) -> None:
    global _paused
    _paused = config.pause_gc and gc.isenabled()
    if _paused:
        gc.disable()


def _resume(_: Any) -> None:
    global _paused
    if _paused:
        _paused = False
        gc.enable()


def register() -> None:
    """For the compiles to come. ``torch._dynamo.reset()`` forgets it."""
    if _pause not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(_pause)
    if _resume not in callback_handler.end_callbacks:
        callback_handler.register_end_callback(_resume)
