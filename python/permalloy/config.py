"""Options of the compiler. ``permalloy.config`` is the one instance; each attribute can be set in the environment.

=============  =========================  ==============================================================================
attribute      environment                meaning
=============  =========================  ==============================================================================
``strict``     ``PERMALLOY_STRICT``       a graph that cannot be compiled raises ``UnsupportedError``
``routes``     ``PERMALLOY_ROUTES``       operator (``*`` allowed) to ``native`` or a rule: ``aten.gelu.*=native,…``
``rewrites``   ``PERMALLOY_REWRITES``     pattern rewrites ``on``, ``off`` or ``always``: ``attention=off,…``
``deny``       ``PERMALLOY_DENY``         decisions that are errors, as ``ROUTE:OPERATOR``: ``native:aten.foo.*,…``
``check``      ``PERMALLOY_CHECK``        run the internal checks, slow
``dump``       ``PERMALLOY_DUMP``         folder that gets the text of each graph
``tune``       ``PERMALLOY_TUNE``         ``off``, ``fast`` or ``full``: time the candidates of a decision on the device
``threads``    ``PERMALLOY_THREADS``      threads of generated kernels; 0 means as many as PyTorch uses
``partition``  ``PERMALLOY_PARTITION``    who cuts a joint graph: ``own`` or ``torch``
``warn``       ``PERMALLOY_WARN``         warn once for each reason to run a graph outside of the compiler
``cache_dir``  ``PERMALLOY_CACHE_DIR``    folder of the cache and of saved reproducers
=============  =========================  ==============================================================================
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator
from typing import Any

_CHOICES = {"tune": ("off", "fast", "full"), "partition": ("own", "torch")}


class Config:
    """Typed attributes; an unknown name or a value of the wrong type is an error."""

    strict: bool = False
    routes: dict[str, str]
    rewrites: dict[str, str]
    deny: list[str]
    check: bool = False
    dump: str | None = None
    tune: str = "off"
    threads: int = 0
    partition: str = "own"
    warn: bool = True
    cache_dir: str = os.path.join(os.path.expanduser("~"), ".cache", "permalloy")

    def __init__(self) -> None:
        self.routes, self.rewrites, self.deny = {}, {}, []
        for name in self.names():
            text = os.environ.get(f"PERMALLOY_{name.upper()}")
            if text:
                setattr(self, name, self._parse(name, text))

    @classmethod
    def names(cls) -> list[str]:
        return list(cls.__annotations__)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self._unknown(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__annotations__:
            raise AttributeError(self._unknown(name))
        kind = _TYPES[name]
        if kind is str and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not (isinstance(value, kind) or (value is None and name == "dump")) or (kind is int and value is True):
            raise TypeError(f"permalloy.config.{name} wants {self.__annotations__[name]}, got {value!r}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"permalloy.config.{name} is one of {', '.join(_CHOICES[name])}; got {value!r}")
        object.__setattr__(self, name, value)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.names(), n=3, cutoff=0.4) or self.names()
        return f"permalloy.config has no option {name!r}; nearest: {', '.join(near)}"

    def _parse(self, name: str, text: str) -> Any:
        kind = _TYPES[name]
        where = f"PERMALLOY_{name.upper()}={text}"
        if kind is bool:
            if text.lower() not in ("0", "1", "true", "false", "yes", "no", "on", "off"):
                raise ValueError(f"{where}: neither 0 nor 1")
            return text.lower() in ("1", "true", "yes", "on")
        if kind is int:
            if not text.isdecimal():
                raise ValueError(f"{where}: not a number")
            return int(text)
        items = [item.strip() for item in text.split(",") if item.strip()]
        if kind is list:
            return items
        if kind is dict:
            for item in items:
                if "=" not in item:
                    raise ValueError(f"{where}: {item!r} is not OPERATOR=ROUTE")
            return dict(item.split("=", 1) for item in items)
        return text

    @contextlib.contextmanager
    def patch(self, **values: Any) -> Iterator[None]:
        """Sets options for the length of a ``with`` block."""
        before = {name: getattr(self, name) for name in values}
        try:
            for name, value in values.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def __repr__(self) -> str:
        return f"permalloy.config({', '.join(f'{n}={getattr(self, n)!r}' for n in self.names())})"


def _runtime_types() -> dict[str, type]:
    kinds = {"bool": bool, "int": int, "str": str, "str | None": str}
    return {n: kinds.get(a) or (dict if a.startswith("dict") else list) for n, a in Config.__annotations__.items()}


_TYPES = _runtime_types()
config = Config()
