"""Options of the compiler. ``permalloy.config`` is the one instance; each attribute can be set in the environment. The README
has their table.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from . import patterns

_CHOICES = {"partition": ("own", "torch"), "check": (False, True, "kernels"), "tune": ("off", "fast", "full")}
_SWITCHES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_PAIRS = {"routes": "OPERATOR=ROUTE", "rewrites": "REWRITE=on"}
_CHECKED = ("routes", "rewrites", "deny")

#: Variables that are no options: read by the compiled part alone, or by the project's own tests.
_VARIABLES = {"PERMALLOY_PROFILE": None, "PERMALLOY_ISA": ("portable", "avx2", "avx512")}
_TESTS = ("PERMALLOY_TEST_", "PERMALLOY_FUZZ_")


class Config:
    """Typed attributes; an unknown name or a value of the wrong type is an error."""

    strict: bool = False
    routes: dict[str, str]
    rewrites: dict[str, str]
    deny: list[str]
    check: bool | str = False
    emulate_eager_casts: bool = False
    chunked_loss: bool | int = False
    dump: str | None = None
    pool_outputs: bool = True
    pause_gc: bool = True
    keep_traces: bool = True
    tune: str = "off"
    partition: str = "own"
    memory_budget: float = 1.0
    warn: bool = True
    cache_dir: str = os.path.join(os.path.expanduser("~"), ".cache", "permalloy")

    def __init__(self) -> None:
        self.routes, self.rewrites, self.deny = {}, {}, []
        for name in self.names():
            text = os.environ.get(f"PERMALLOY_{name.upper()}")
            if text:
                value = self._parse(name, text)
                try:
                    setattr(self, name, value)
                except ValueError as e:
                    raise ValueError(f"PERMALLOY_{name.upper()}={text}: {e}") from None
        self._check_environment()

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
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not (isinstance(value, kind) or (value is None and name == "dump")) or not _holds_text(value):
            raise TypeError(f"permalloy.config.{name} wants {self.__annotations__[name]}, got {value!r}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"permalloy.config.{name} is one of {', '.join(map(str, _CHOICES[name]))}; got {value!r}")
        if name == "chunked_loss" and not 0 <= value <= 1 << 20:
            raise ValueError(f"permalloy.config.chunked_loss is a number of MB, at most {1 << 20}; got {value!r}")
        if kind is float and not 0 <= value <= 1:
            raise ValueError(f"permalloy.config.{name} is a number from 0 to 1; got {value!r}")
        if name in _CHECKED:
            patterns.check(**{name: value})
        object.__setattr__(self, name, value)

    def _unknown(self, name: str) -> str:
        return f"permalloy.config has no option {name!r}; nearest: {', '.join(_nearest(name, self.names()))}"

    def _parse(self, name: str, text: str) -> Any:
        kind = _TYPES[name]
        where = f"PERMALLOY_{name.upper()}={text}"
        if kind is bool and text.lower() not in _SWITCHES:
            raise ValueError(f"{where}: neither 0 nor 1")
        if kind in (bool, _MIXED, _AMOUNT) and text.lower() in _SWITCHES:
            return _SWITCHES[text.lower()]
        if kind is _AMOUNT:
            if not text.isdecimal():
                raise ValueError(f"{where}: no number")
            return int(text)
        if kind is float:
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"{where}: no number") from None
        items = [item.strip() for item in text.split(",") if item.strip()]
        if kind is list:
            return items
        if kind is dict:
            for item in items:
                if "=" not in item:
                    raise ValueError(f"{where}: {item!r} is not {_PAIRS[name]}")
            return {key.strip(): value.strip() for key, value in (item.split("=", 1) for item in items)}
        return text

    def _check_environment(self) -> None:
        """A misspelt variable would do nothing, without a word."""
        options = [f"PERMALLOY_{name.upper()}" for name in self.names()]
        for name in sorted(n for n in os.environ if n.startswith("PERMALLOY_")):
            choices = _VARIABLES.get(name)
            if choices and os.environ[name] not in choices:
                raise ValueError(f"{name} is one of {', '.join(choices)}; got {os.environ[name]!r}")
            if name not in options and name not in _VARIABLES and not name.startswith(_TESTS):
                near = ", ".join(_nearest(name, [*options, *_VARIABLES]))
                warnings.warn(f"permalloy reads no variable {name}; nearest: {near}", UserWarning, stacklevel=2)

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

    def chunk_bytes(self) -> int | None:
        """Bytes of a piece of a loss's logits; None when they are made whole."""
        megabytes = _CHUNK if self.chunked_loss == 1 else self.chunked_loss
        return megabytes << 20 if megabytes else None

    def __repr__(self) -> str:
        return f"permalloy.config({', '.join(f'{n}={getattr(self, n)!r}' for n in self.names())})"


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    known = list(known)
    return difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known


def _holds_text(value: Any) -> bool:
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return all(isinstance(part, str) for part in parts)


#: A switch with more positions than two.
_MIXED = (bool, str)
#: A switch that may be a number, too.
_AMOUNT = (bool, int)
#: MB of a piece of logits, unless said otherwise.
_CHUNK = 32


def _runtime_types() -> dict[str, Any]:
    kinds = {"bool": bool, "float": float, "str": str, "str | None": str, "bool | str": _MIXED, "bool | int": _AMOUNT}
    return {n: kinds.get(a) or (dict if a.startswith("dict") else list) for n, a in Config.__annotations__.items()}


_TYPES = _runtime_types()
config = Config()
