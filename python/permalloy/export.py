"""FX graph to text form: the one way a graph gets from PyTorch into the compiler.

The text form is specified in ARCHITECTURE.md, section 9. The export is one pass over the nodes. Integer nodes
(``sym_size``, arithmetic on sizes) vanish into size expressions, ``getitem`` nodes into results of the node they index.
Whatever the form cannot hold raises :class:`Unsupported` with the node, and the caller runs the graph natively.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._sympy import functions as sympy_functions
from torch.utils._sympy.symbol import SymT, symbol_is_type

from . import _core
from .errors import Unsupported

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
}
DEVICES = ("cpu", "cuda", "npu", "meta")
INT_MAX = 2**63 - 1
#: Operators whose result's shape depends on data though no tag says so: tracing finds the shape of made-up data.
_UNTAGGED = {torch.ops.aten._unique.default}
#: Operators whose results PyTorch marks instead of computing them.
_LAZY = {torch.ops.aten._neg_view.default, torch.ops.aten._efficientzerotensor.default}


@dataclass
class Exported:
    """A graph's text and what the text cannot hold."""

    text: str
    name: str
    kind: str
    #: FX node of each tensor value that has one, by the value's name.
    values: dict[str, fx.Node] = field(default_factory=dict)
    #: FX node of each integer that is not constant, by its expression; the first one that has it.
    integers: dict[str, fx.Node] = field(default_factory=dict)
    #: Real tensors the graph holds, in the order of the trailing inputs that stand for them.
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    #: Devices of all values.
    devices: set[torch.device] = field(default_factory=set)
    #: ShapeEnv of the graph's symbols; None for a static graph.
    shape_env: Any = None
    nodes: int = 0


def export(gm: fx.GraphModule, kind: str, *, name: str = "graph", forward_outputs: int | None = None) -> Exported:
    """Writes ``gm`` in the text form.

    ``kind`` is ``joint``, ``forward``, ``backward`` or ``inference``; a joint graph needs ``forward_outputs``, the
    number of leading outputs that belong to the forward. Raises :class:`Unsupported`.
    """
    return _Exporter(gm, kind, name, forward_outputs).run()


# --- source lines -----------------------------------------------------------------------------

_FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')
_LOCATIONS: dict[str, str] = {}
_TORCH_DIR = torch.__path__[0].rsplit("/", 1)[-1]


def location_of(node: fx.Node) -> str | None:
    """``file.py:LINE in fn`` of the innermost line of the user's model, or None."""
    trace = node.meta.get("stack_trace")
    return _location(trace) if trace else None


@functools.cache
def _declared() -> frozenset[str]:
    """The operators whose effects the compiler knows."""
    return frozenset(op["name"] for op in json.loads(_core.ops_json()))


def _location(trace: str) -> str | None:
    found = _LOCATIONS.get(trace)
    if found is None:
        frames = _FRAME.findall(trace)
        own = [f for f in frames if f"/site-packages/{_TORCH_DIR}/" not in f[0]] or frames
        path, line, fn = own[-1] if own else ("", "", "")
        found = f"{path.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line} in {fn}" if own else ""
        if len(_LOCATIONS) > 100_000:
            _LOCATIONS.clear()
        _LOCATIONS[trace] = found
    return found or None


def origin_of(gm: fx.GraphModule) -> tuple[str, int, str] | None:
    """File, line and function of the outermost line of the user's code that the graph starts with."""
    for node in gm.graph.nodes:
        found = _FRAME.search(node.meta.get("stack_trace") or "")
        if found:
            return found[1], int(found[2]), found[3]
    return None


def operator_of(node: fx.Node) -> str:
    """The operator's full name, as the text form writes it."""
    return str(node.target) if node.op == "call_function" else f"{node.op} {node.target}"


# --- size expressions -------------------------------------------------------------------------

_BINARY = {"FloorDiv": "floordiv", "CleanDiv": "floordiv", "Mod": "mod", "PythonMod": "mod"}


def _is_max_of_one(e: sympy.Expr) -> bool:
    return isinstance(e, sympy_functions.Max) and len(e.args) == 2 and 1 in e.args


class Sizes:
    """Turns SymPy size expressions into text; remembers the symbols it met."""

    def __init__(self) -> None:
        self.symbols: dict[str, sympy.Symbol] = {}
        self.shape_env: Any = None
        self._texts: dict[Any, str] = {}
        self._by_node: dict[int, tuple[Any, str]] = {}
        self._contiguous: dict[tuple, list[str]] = {}

    def text(self, value: int | torch.SymInt) -> str:
        if type(value) is int:
            return str(value)
        if not isinstance(value, torch.SymInt):
            raise _Inexpressible(f"a size of type {type(value).__name__}")
        inner = value.node
        known = self._by_node.get(id(inner))
        if known is not None:
            return known[1]
        if not hasattr(inner, "expr"):
            raise _Inexpressible("a size without a symbolic expression (nested tensor?)")
        if self.shape_env is None:
            self.shape_env = inner.shape_env
        text = self.expr(inner.expr)
        self._by_node[id(inner)] = (inner, text)  # holds the node, so that its id stays its own
        return text

    def stride(self, value: torch.SymInt) -> str:
        """As ``text``, without the care PyTorch takes of sizes that are 0: no element has an address then."""
        text = self.text(value)
        if "max(1, " not in text:
            return text
        expr = value.node.expr.replace(_is_max_of_one, lambda e: next(a for a in e.args if a != 1))
        return self.expr(expr)

    def expr(self, e: sympy.Expr) -> str:
        text = self._texts.get(e)
        if text is None:
            text = self._texts[e] = self._convert(e)
        return text

    def _convert(self, e: sympy.Expr) -> str:
        if e.is_Symbol:
            if not symbol_is_type(e, SymT.SIZE):
                kind = "data-dependent" if symbol_is_type(e, SymT.UNBACKED_INT) else "unknown"
                raise _Inexpressible(f"{kind} size {e}")
            self.symbols[e.name] = e
            return e.name
        if e.is_Integer:
            if not -INT_MAX - 1 <= int(e) <= INT_MAX:
                raise _Inexpressible(f"integer {e} beyond 64 bits")
            return str(int(e))
        name = type(e).__name__
        if e.is_Add:
            out = ""
            for arg in sorted(e.args, key=lambda a: (a.is_number, a.sort_key())):
                t = self.expr(arg)
                if not out:
                    out = t
                else:
                    out += f" - {t[1:]}" if t.startswith("-") else f" + {t}"
            return out
        if e.is_Mul:
            coefficient, rest = e.as_coeff_Mul()
            if not coefficient.is_Integer:
                raise _Inexpressible(f"size expression {e}")
            factors = [self._factor(f) for f in sympy.Mul.make_args(rest)]
            head = {1: "", -1: "-"}.get(int(coefficient), f"{int(coefficient)}*")
            return head + "*".join(factors)
        if e.is_Pow or name == "PowByNatural":
            base, power = e.args
            if power.is_Integer and 0 < int(power) <= 16:
                return "*".join([self._factor(base)] * int(power))
        elif name in _BINARY:
            return f"{_BINARY[name]}({self.expr(e.args[0])}, {self.expr(e.args[1])})"
        elif name == "ModularIndexing":
            base, divisor, modulus = map(self.expr, e.args)
            return f"mod({base if divisor == '1' else f'floordiv({base}, {divisor})'}, {modulus})"
        elif isinstance(e, (sympy_functions.Min, sympy_functions.Max)):
            terms = sorted(map(self.expr, e.args))
            out = terms[0]
            for t in terms[1:]:
                out = f"{'min' if name == 'Min' else 'max'}({out}, {t})"
            return out
        elif name == "Identity":
            return self.expr(e.args[0])
        raise _Inexpressible(f"size expression {e} ({name})")

    def _factor(self, e: sympy.Expr) -> str:
        text = self.expr(e)
        return f"({text})" if e.is_Add or text.startswith("-") else text

    def contiguous(self, shape: Any, texts: list[str]) -> list[str]:
        """Row-major strides of a shape, as text."""
        key = tuple(texts)
        found = self._contiguous.get(key)
        if found is None:
            stride: Any = sympy.Integer(1)
            out = []
            for size in reversed(shape):
                out.append(self.expr(stride))
                e = sympy.Integer(size) if type(size) is int else size.node.expr
                stride = stride * (sympy.Integer(1) if e == 0 else e)
            out.reverse()
            found = self._contiguous[key] = out
        return found

    def declarations(self) -> list[str]:
        """``symbol`` lines of all symbols met."""
        lines = []
        for name in sorted(self.symbols, key=lambda n: (len(n), n)):
            symbol = self.symbols[name]
            hint = self.shape_env.backed_var_to_val.get(symbol)
            if hint is None:
                raise _Inexpressible(f"size {name} without an example value")
            bounds = self.shape_env.var_to_range.get(symbol)
            low, high = (0, INT_MAX) if bounds is None else (_bound(bounds.lower), _bound(bounds.upper))
            lines.append(f"  symbol {name} hint={int(hint)} range=[{low}, {high}]\n")
        return lines


def _bound(x: Any) -> int:
    if x.is_Integer and -INT_MAX - 1 <= int(x) <= INT_MAX:
        return int(x)
    return INT_MAX if x.is_positive else -INT_MAX - 1


class _Inexpressible(Exception):
    """The text form has no words for a value; gets its node on the way up."""


# --- nodes ------------------------------------------------------------------------------------


class _Exporter:
    def __init__(self, gm: fx.GraphModule, kind: str, name: str, forward_outputs: int | None) -> None:
        self.gm, self.kind, self.forward_outputs = gm, kind, forward_outputs
        self.sizes = Sizes()
        self.env: dict[fx.Node, str] = {}  # what stands for a node in an argument
        self.parts: dict[fx.Node, list[str | None]] = {}  # results of nodes that return several
        self.types: dict[tuple, str] = {}  # text of static types
        self.prefixes: dict[tuple, tuple[str, str]] = {}
        self.targets: dict[Any, str] = {}
        self.names = {n.name for n in gm.graph.nodes}
        self.out = Exported("", name, kind)
        self.format: dict[type, Callable[[Any], str]] = {
            fx.Node: self.env.__getitem__,
            bool: lambda x: "true" if x else "false",
            int: str,
            float: repr,
            str: _quote,
            type(None): lambda _: "none",
            list: self._list,
            tuple: self._list,
            torch.Size: self._list,
            fx.immutable_collections.immutable_list: self._list,
            torch.SymInt: self.sizes.text,
            torch.dtype: _dtype,
            torch.device: _device,
            torch.layout: lambda x: f"layout:{str(x).removeprefix('torch.')}",
            torch.memory_format: lambda x: f"memory_format:{str(x).removeprefix('torch.')}",
        }

    def run(self) -> Exported:
        inputs: list[str] = []
        constants: list[str] = []
        body: list[str] = []
        outputs: list[str] = []
        node = None
        try:
            for node in self.gm.graph.nodes:
                op = node.op
                if op == "call_function":
                    self._call(node, body)
                elif op == "placeholder":
                    inputs.append(self._placeholder(node))
                elif op == "get_attr":
                    constants.append(self._constant(node))
                elif op == "output":
                    outputs = [self._output(v) for v in torch.utils._pytree.arg_tree_leaves(*node.args)]
                else:
                    raise _Inexpressible(f"a {op} node")
            node = None
            head = self._head()
            symbols = self.sizes.declarations()
        except _Inexpressible as e:
            raise Unsupported(f"cannot export {e}", node) from None
        self.out.text = "".join([head, *symbols, *inputs, *filter(None, constants), *body, *outputs, "}\n"])
        self.out.shape_env = self.sizes.shape_env
        self.out.nodes = len(body)
        return self.out

    def _head(self) -> str:
        kind = self.kind
        if kind == "joint":
            if self.forward_outputs is None:
                raise ValueError("a joint graph needs forward_outputs")
            kind = f"joint(forward_outputs={self.forward_outputs})"
        return f"graph {_quote(self.out.name)} {kind} {{\n"

    def _placeholder(self, node: fx.Node) -> str:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            if value.is_neg() or value.is_conj():
                raise _Inexpressible("an input that is negated or conjugated without data that says so")
            role = " role=tangent" if "tangents" in str(node.target) else ""
            return f"  input {self._name(node)}: {self._type(value, always_strided=True)}{role}\n"
        if isinstance(value, torch.SymInt) or type(value) is int:
            return f"  input {self._integer(node, value)}\n"
        raise _Inexpressible(f"an input of type {type(value).__name__}")

    def _constant(self, node: fx.Node) -> str:
        target = str(node.target)
        value: Any = self.gm
        for part in target.split("."):
            value = getattr(value, part, None)
        if isinstance(value, torch.nn.Module):
            raise _Inexpressible("a graph inside of the graph (a higher-order operator)")
        if not isinstance(value, torch.Tensor):
            raise _Inexpressible(f"an attribute of type {type(value).__name__}")
        if isinstance(value, FakeTensor):
            raise _Inexpressible("a constant without data")
        for name, known in self.out.constants.items():
            if known is value:
                self.env[node] = f"%{name}"
                return ""
        line = f"  input {self._name(node)}: {self._type(value, always_strided=True)}\n"
        self.out.constants[node.name] = value
        return line

    def _integer(self, node: fx.Node, value: int | torch.SymInt) -> str:
        text = self.env[node] = self.sizes.text(value)
        if type(value) is not int:
            self.out.integers.setdefault(text, node)
        return text

    def _name(self, node: fx.Node) -> str:
        name = node.name
        self.out.values[name] = node
        text = self.env[node] = f"%{name}"
        return text

    def _call(self, node: fx.Node, body: list[str]) -> None:
        target = node.target
        if target is operator.getitem and node.args[0] in self.parts:
            return self._getitem(node)
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) or type(value) is int:
            self._integer(node, value)
            return None
        op = self.targets.get(target)
        if op is None:
            if not isinstance(target, torch._ops.OpOverload):
                raise _Inexpressible(f"a call of {getattr(target, '__name__', target)}, which is no operator")
            op = self.targets[target] = str(target)
        if target in _LAZY:
            raise _Inexpressible("a result that is negated or zero without data that says so")
        if target in _UNTAGGED:
            raise _Inexpressible("a result whose shape depends on data")
        if self.kind == "joint" and target._schema.is_mutable:
            tag = node.meta.get("partitioner_tag")
            if tag in ("is_backward", "must_be_in_backward"):
                raise _Inexpressible("a write in the backward part of a joint graph")
        if isinstance(value, torch.Tensor):
            left = f"{self._name(node)}: {self._type(value)}"
        elif isinstance(value, (list, tuple)):
            left = self._results(node, value)
        elif value is None and not target._schema.returns and op in _declared():
            left = None  # an operator that the table does not have could be taken for one that does nothing
        else:
            raise _Inexpressible(f"a result of type {type(value).__name__}")
        form = self.format
        args = [form[type(a)](a) if type(a) in form else self._other(a) for a in node.args]
        if node.kwargs:
            args += [f"{k}={form[type(a)](a) if type(a) in form else self._other(a)}" for k, a in node.kwargs.items()]
        trace = node.meta.get("stack_trace")
        loc = _location(trace) if trace else None
        call = f"{op}({', '.join(args)})"
        body.append((f"  {left} = {call}" if left else f"  {call}") + (f" loc={_quote(loc)}\n" if loc else "\n"))
        return None

    def _results(self, node: fx.Node, values: list | tuple) -> str:
        """Names results after the getitem that reads them; the others get new names."""
        readers: dict[int, fx.Node] = {}
        for user in node.users:
            if user.target is operator.getitem and user.args[0] is node:
                readers.setdefault(user.args[1], user)
        parts: list[str | None] = []
        left = []
        for i, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                reader = readers.get(i)
                if reader is not None:
                    text = self._name(reader)
                else:
                    text = f"{node.name}_r{i}"
                    while text in self.names:
                        text += "_"
                    self.names.add(text)
                    text = f"%{text}"
                parts.append(text)
                left.append(f"{text}: {self._type(value)}")
            elif value is None:
                parts.append("none")
                left.append("_")
            elif isinstance(value, torch.SymInt) or type(value) is int:
                parts.append(self.sizes.text(value))
                left.append("_")
            else:
                raise _Inexpressible(f"a result of type {type(value).__name__}")
        if not left:
            raise _Inexpressible("an operator without results")
        self.parts[node] = parts
        self.env[node] = f"[{', '.join(p or 'none' for p in parts)}]"
        return ", ".join(left)

    def _getitem(self, node: fx.Node) -> None:
        self.env[node] = self.parts[node.args[0]][node.args[1]] or "none"

    def _output(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            if value in self.parts:
                raise _Inexpressible("a list among the outputs")
            return f"  output {self.env[value]}\n"
        if value is None:
            return "  output none\n"
        if type(value) is int or isinstance(value, torch.SymInt):
            return f"  output {self.sizes.text(value)}\n"
        raise _Inexpressible(f"an output of type {type(value).__name__}")

    # arguments

    def _list(self, items: Any) -> str:
        form = self.format
        return f"[{', '.join([form[type(a)](a) if type(a) in form else self._other(a) for a in items])}]"

    def _other(self, value: Any) -> str:
        for kind in (fx.Node, list, tuple):  # subclasses
            if isinstance(value, kind):
                return self.format[kind](value)
        raise _Inexpressible(f"an argument of type {type(value).__name__}")

    # types

    def _type(self, t: torch.Tensor, always_strided: bool = False) -> str:
        kind = type(t)
        if kind is not FakeTensor and kind is not torch.Tensor and kind is not torch.nn.Parameter:
            raise _Inexpressible(f"a tensor of class {kind.__name__}")
        if t.layout is not torch.strided:
            raise _Inexpressible(f"a tensor of layout {t.layout}")
        shape, strides, dtype, device = t.shape, t.stride(), t.dtype, t.device
        key = (dtype, device, shape, strides)
        try:  # hashable when all sizes are static
            known = self.types.get(key)
        except TypeError:
            known, key = None, None
        if known is not None and not always_strided:
            return known
        head, tail = self._prefix(dtype, device)
        sizes = [str(s) if type(s) is int else self.sizes.text(s) for s in shape]
        steps = [str(s) if type(s) is int else self.sizes.stride(s) for s in strides]
        text = f"{head}[{', '.join(sizes)}]"
        if (always_strided and sizes) or steps != self.sizes.contiguous(shape, sizes):
            text += f" strides=[{', '.join(steps)}]"
        text += tail
        if key is not None and not always_strided:
            self.types[key] = text
        return text

    def _prefix(self, dtype: torch.dtype, device: torch.device) -> tuple[str, str]:
        found = self.prefixes.get((dtype, device))
        if found is None:
            place = _device(device)
            self.out.devices.add(device)
            found = self.prefixes[dtype, device] = (_dtype(dtype), "" if place == "@cpu" else f" {place}")
        return found


def _quote(s: str) -> str:
    if '"' in s or "\\" in s or "\n" in s or "\t" in s or "\r" in s:
        s = s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{s}"'


def _dtype(d: torch.dtype) -> str:
    name = DTYPES.get(d)
    if name is None:
        raise _Inexpressible(f"dtype {d}")
    return name


def _device(d: torch.device) -> str:
    if d.type not in DEVICES:
        raise _Inexpressible(f"device {d}")
    return f"@{d.type}" if d.type in ("cpu", "meta") else f"@{d.type}:{d.index or 0}"
