"""Runs a program's generated kernels in Triton's interpreter, in a process of its own.

The interpreter has to be switched on before Triton is imported, and Triton's compiler off: hence the process.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib.util
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import torch

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}


def size(text, symbols):
    """The value of a size expression in the compiler's text form."""
    functions = {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max}
    return eval(text, {"__builtins__": {}}, {**functions, **symbols})


class Interpreter:
    """A worker process. `run` gives a program's outputs for inputs and sizes."""

    def __enter__(self):
        os.environ["TRITON_INTERPRET"] = "1"
        try:
            context = multiprocessing.get_context("spawn")
            self.pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context, initializer=mend_interpreter)
            self.pool.submit(os.getpid).result()
        finally:
            del os.environ["TRITON_INTERPRET"]
        return self

    def __exit__(self, *_):
        self.pool.shutdown()

    def run(self, program, inputs, symbols=None):
        return self.pool.submit(run_program, json.dumps(program), inputs, symbols or {}).result()


def function(source, name, folder):
    """The kernel of a source text; Triton reads the text of functions from files."""
    path = pathlib.Path(folder) / f"{name}_{abs(hash(source)):x}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def mend_interpreter():
    """Two things that the interpreter does differently from a device.

    With numpy 2.4 and newer its integers, arrays of one element, no longer convert to an index. And f32 becomes bf16 by
    truncation, where every device rounds to the nearest.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    patch, convert = interpreter._patch_lang_tensor, interpreter._convert_float

    def patch_tensor(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def convert_float(data, from_type, to_type, rounding):
        if (from_type, to_type) != (tl.float32, tl.bfloat16):
            return convert(data, from_type, to_type, rounding)
        rounded = torch.from_numpy(np.ascontiguousarray(data)).to(torch.bfloat16)
        return rounded.view(torch.int16).numpy().view(np.uint16).reshape(data.shape)

    interpreter._patch_lang_tensor, interpreter._convert_float = patch_tensor, convert_float


def extent(shape, strides):
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def run_program(text, inputs, symbols):
    program = json.loads(text)
    memories = {}
    inputs = iter(inputs)
    for i in program["inputs"]:
        if "buffer" in i:
            memories[i["buffer"]] = next(inputs)
    for at, b in enumerate(program["buffers"]):
        shape = [size(d, symbols) for d in b["shape"]]
        strides = [size(d, symbols) for d in b["strides"]]
        if at in memories:
            given = memories[at]
            assert list(given.shape) == shape and given.dtype == DTYPES[b["dtype"]], (b, given.shape, given.dtype)
            memory = torch.zeros(extent(shape, strides), dtype=given.dtype)
            memory.as_strided(shape, strides).copy_(given)
            memories[at] = memory
        else:
            # What nobody has written must not look right.
            bits = torch.full((extent(shape, strides) * DTYPES[b["dtype"]].itemsize,), 0x7F, dtype=torch.uint8)
            memories[at] = bits.view(DTYPES[b["dtype"]])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        # Elements out of bounds are computed and thrown away.
        warnings.simplefilter("ignore", RuntimeWarning)
        for step in program["steps"]:
            if "launches" not in step:
                raise NotImplementedError(str(step))
            run_step(step, memories, symbols, folder)
    results = []
    for o in program["outputs"]:
        if o is None or "int" in o:
            results.append(None if o is None else size(o["int"], symbols))
            continue
        shape, strides = ([size(d, symbols) for d in o[k]] for k in ("shape", "strides"))
        results.append(memories[o["buffer"]].as_strided(shape, strides, size(o["offset"], symbols)).clone())
    return results


def run_step(step, memories, symbols, folder):
    fault = torch.zeros(1, dtype=torch.int32)
    scratch = [torch.full((size(s["elements"], symbols),), 127, dtype=DTYPES[s["dtype"]]) for s in step["scratch"]]

    def memory(m):
        if "fault" in m:
            return fault
        return scratch[m["scratch"]] if "scratch" in m else memories[m["buffer"]]

    for launch in step["launches"]:
        if "zero" in launch:
            memory(launch["zero"]).zero_()
            continue
        if "sort" in launch:
            sort = {name: memory(m) for name, m in launch["sort"].items() if name != "elements"}
            values, order = torch.sort(sort["keys"], stable=True)
            sort["sorted"].copy_(values)
            sort["order"].copy_(order)
            continue
        for expression, bound in launch["requires"]:
            assert size(expression, symbols) <= bound
        args = []
        for a in launch["args"]:
            if "memory" not in a:
                args.append(size(a["value"], symbols))
                continue
            m = memory(a["memory"])
            # A bool is a byte.
            args.append(m.view(torch.int8) if m.dtype == torch.bool else m)
        programs = size(launch["programs"], symbols)
        if programs > 0:
            kernel = function(launch["source"], launch["kernel"], folder)
            kernel[(programs,)](*args, **dict(launch["constants"]))
        if fault.item() != 0:
            raise IndexError(launch["faults"][fault.item() - 1])
