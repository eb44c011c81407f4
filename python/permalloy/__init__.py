"""Permalloy: a compiler for PyTorch training steps.

    step = torch.compile(train_step, backend="permalloy")

- :data:`config`: options, each also an environment variable
- :func:`explain`: what became of each graph, and why
- :func:`records`: the same as values; :func:`clear_records` forgets them
- :func:`operators`: the operator table
- :func:`profile`: where the time of the steps went, if ``PERMALLOY_PROFILE`` is set
- :func:`capture_matmul`: keeps the gradients of ``matmul`` one operator in the graphs
- :class:`UnsupportedError`, :class:`InternalError`, :class:`FallbackWarning`: what can be raised, or warned of
"""

from __future__ import annotations

import json as _json
from typing import Any

from . import _core, capture, collector
from .capture import capture_matmul
from .config import config
from .errors import FallbackWarning, InternalError, PermalloyError, UnsupportedError
from .record import Record, clear_records, explain, records

__version__: str = _core.version()

__all__ = [
    "FallbackWarning",
    "InternalError",
    "PermalloyError",
    "Record",
    "UnsupportedError",
    "__version__",
    "capture_matmul",
    "clear_records",
    "config",
    "explain",
    "operators",
    "profile",
    "records",
]


capture.register()
collector.register()


def operators() -> list[dict[str, Any]]:
    """Every operator the compiler has a declaration for: name, cost class, effect, rules, doc."""
    return _json.loads(_core.ops_json())


def profile() -> str:
    """Prints and returns the time of each kernel and native operator, over all steps of this process.

    Steps are timed when the environment variable ``PERMALLOY_PROFILE`` is 1 as the first of them runs.
    """
    text = _core.profile()
    if text is None:
        text = "nothing was timed: set PERMALLOY_PROFILE=1 before Python starts"
    print(text)
    return text
