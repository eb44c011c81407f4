"""One call of an ATen operator, and its graph in text form."""

from dataclasses import dataclass, field

import torch

FLOATS = [torch.float64, torch.float32, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.uint8, torch.int8]

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
}


@dataclass
class Sample:
    """An operator with arguments."""

    name: str
    args: tuple
    kwargs: dict
    reference: object = None
    """Stands in for the operator where the CPU has no kernel for it."""
    tensors: list = field(default_factory=list)

    def __str__(self):
        def show(a):
            if isinstance(a, torch.Tensor):
                return f"{DTYPES[a.dtype]}{list(a.shape)}"
            return str(a)

        args = [show(a) for a in self.args] + [f"{k}={show(a)}" for k, a in self.kwargs.items()]
        return f"{self.name}({', '.join(args)})"

    def operator(self):
        namespace, packet, overload = self.name.split(".")
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)

    def eager(self):
        """What PyTorch returns, always as a list; None where it returns nothing."""

        def copy(a):
            return a.clone() if isinstance(a, torch.Tensor) else a

        call = self.reference or self.operator()
        out = call(*map(copy, self.args), **{k: copy(a) for k, a in self.kwargs.items()})
        return list(out) if isinstance(out, (tuple, list)) else [out]

    def graph(self, results, symbolic=False):
        """The one-node graph; the tensors of the arguments become its inputs, in order.

        When symbolic, every size above 1 is a symbol, the same one for equal sizes.
        """
        self.tensors = []
        args = [self.argument(a) for a in self.args] + [f"{k}={self.argument(a)}" for k, a in self.kwargs.items()]
        symbols = sorted({n for t in self.tensors for n in t.shape if n > 1}) if symbolic else []
        made = [f"%r{i}: {type_of(t, symbols)}" if t is not None else "_" for i, t in enumerate(results)]
        lines = ['graph "sample" inference {']
        lines += [f"  symbol s{n} hint={n} range=[2, inf]" for n in symbols]
        lines += [f"  input %x{i}: {type_of(t, symbols)}" for i, t in enumerate(self.tensors)]
        lines += [f"  {', '.join(made)} = {self.name}({', '.join(args)})"]
        lines += [f"  output %r{i}" if t is not None else "  output none" for i, t in enumerate(results)]
        return "\n".join([*lines, "}", ""])

    def argument(self, a):
        if isinstance(a, torch.Tensor):
            self.tensors.append(a)
            return f"%x{len(self.tensors) - 1}"
        if a is None:
            return "none"
        if isinstance(a, bool):
            return str(a).lower()
        if isinstance(a, (int, float)):
            return repr(a)
        if isinstance(a, str):
            return f'"{a}"'
        if isinstance(a, torch.dtype):
            return DTYPES[a]
        if isinstance(a, torch.memory_format):
            return f"memory_format:{str(a).split('.')[1]}"
        return f"[{', '.join(map(self.argument, a))}]"


def sample(name, *args, reference=None, **kwargs):
    name = name if name.count(".") == 2 else f"aten.{name}"
    return Sample(name, args, kwargs, reference)


def each_dtype(x, dtypes):
    return [x.to(d) for d in dtypes]


def type_of(t, symbols=()):
    sizes = [f"s{n}" if n in symbols else str(n) for n in t.shape]
    return f"{DTYPES[t.dtype]}[{', '.join(sizes)}]"
