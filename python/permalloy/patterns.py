"""What ``config.routes``, ``config.rewrites`` and ``config.deny`` say of operators and rewrites."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

import torch

from . import _core

#: Namespaces whose operators all exist as soon as PyTorch is imported.
_CLOSED = ("aten.", "prims.")


def check(
    routes: Mapping[str, str] | None = None, rewrites: Mapping[str, str] | None = None, deny: Sequence[str] = ()
) -> None:
    """Raises ``ValueError`` with the nearest names if a line names an operator, a route or a rewrite that there is not."""
    unknown = _core.check_options(list((routes or {}).items()), list((rewrites or {}).items()), list(deny))
    for pattern in unknown:
        # An operator without a declaration can be denied too; libraries may register theirs later.
        if pattern.startswith(_CLOSED) and not any(map(_matcher(pattern), names := _operators())):
            near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise ValueError(f"deny entry for {pattern!r} matches no operator{hint}")


def denies_native(deny: list[str], operator: str) -> str | None:
    """The entry that forbids an operator to run as PyTorch's own kernel."""
    return _core.denies_native(list(deny), operator)


def _matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(".*".join(map(re.escape, pattern.split("*")))).fullmatch


def _operators() -> list[str]:
    """``aten.mm.default``: full names of all operators that PyTorch has now."""
    found = (name.replace("::", ".", 1) for name in torch._C._dispatch_get_all_op_names())
    return [name if name.count(".") > 1 else f"{name}.default" for name in found]
