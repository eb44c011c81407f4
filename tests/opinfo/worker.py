"""Runs samples of one operator variant after another, told by lines of JSON on standard input.

Every answer is a line of JSON: ``begin`` before a sample runs, so that a crash or a hang has a name, ``end`` with what
came of it, and ``done``.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

# What operators print goes to stderr; the answers have the real standard output for themselves.
_answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

import permalloy  # noqa: E402
import torch  # noqa: E402
from functorch.compile import default_partition, nop  # noqa: E402
from judge import UNINITIALISED, Call, Expected, Wrong, call_of, copied, train  # noqa: E402
from permalloy.backend import Session  # noqa: E402
from torch._functorch.aot_autograd import aot_function  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "bool": torch.bool}


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def variants() -> list[tuple[str, str]]:
    """All operator variants with the dtypes they take, in the order of the database."""
    return [(name_of(op), short) for op in op_db for short, dtype in DTYPES.items() if dtype in op.dtypes]


def compiled(call: Call, backend: str) -> Call:
    """The call through AOTAutograd, which is where ``torch.compile`` goes after Dynamo."""
    if backend == "aot_eager":
        return aot_function(call, nop, nop, default_partition, {}, inference_compiler=nop)
    session = Session()
    return aot_function(
        call,
        session.compiler("forward", keep=False),
        session.compiler("backward", keep=False),
        session.partition,
        {},
        keep_inference_input_mutations=True,
        inference_compiler=session.compiler("inference", keep=False),
    )


class Sweep:
    """The samples of one variant, and the judge's word on each."""

    def __init__(self, name: str, dtype: str, seed: int, count: int) -> None:
        self.op = next(op for op in op_db if name_of(op) == name)
        self.dtype, self.seed = DTYPES[dtype], seed
        self.count = count

    def samples(self) -> list[tuple[int, Any]]:
        """``count`` samples with their indices: the first, and others spread evenly."""
        torch.manual_seed(self.seed)
        learns = self.dtype.is_floating_point and self.op.supports_autograd and self.dtype in self.op.backward_dtypes
        every = list(self.op.sample_inputs("cpu", self.dtype, requires_grad=learns))
        step = max(1, -(-len(every) // self.count))
        offset = self.seed % step
        chosen = sorted({0, *range(offset, len(every), step)}) if every else []
        return [(i, every[i]) for i in chosen]

    def run(self, sample: Any, backend: str, expected: Expected, call: Call, inputs: list[torch.Tensor]) -> str:
        """Empty when all is well, else what is wrong."""
        try:
            got = train(compiled(call, backend), [copied(x) for x in inputs], self.seed)
        except Exception as e:  # noqa: BLE001 - reported
            return f"{type(e).__name__}: {str(e).strip()[:400]}"
        try:
            expected.judge(got, values=self.op.name not in UNINITIALISED)
        except Wrong as e:
            return f"wrong: {e}"
        return ""

    def sample(self, sample: Any, backend: str, ask_reference: bool) -> dict[str, Any]:
        call, inputs = call_of(self.op, sample)
        try:
            expected = Expected.of(call, inputs, self.seed, isinstance(self.op, (UnaryUfuncInfo, BinaryUfuncInfo)))
        except Exception as e:  # noqa: BLE001 - eager cannot do it either
            return {"status": "eager fails", "message": f"{type(e).__name__}: {str(e)[:200]}"}
        permalloy.clear_records()
        torch._dynamo.reset()
        message = self.run(sample, backend, expected, call, inputs)
        found = {"status": "pass", "message": message, "native": _native()}
        internal = [r.reason for r in permalloy.records() if (r.reason or "").startswith("internal error")]
        if internal:
            found["message"] = message = internal[0]
        if message:
            kind = "wrong" if message.startswith("wrong") else "error"
            found["status"] = kind
            if ask_reference:
                theirs = self.run(sample, "aot_eager", expected, call, inputs)
                found["reference"] = theirs
                found["status"] = "aot_eager fails" if theirs else kind
        return found


def _native() -> list[list[str]]:
    """Operators that ran as PyTorch's kernels, with reason code and detail; whole graphs under the name ``graph``."""
    found = set()
    for record in permalloy.records():
        if not record.compiled:
            found.add((f"graph:{record.kind}", "whole-graph", f"{record.reason} [{record.operator}]"))
        for d in record.decisions:
            if d["route"] == "native":
                found.add((d["operator"], d["reason"], d.get("detail") or ""))
    return [list(entry) for entry in sorted(found)]


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    permalloy.config.warn = False
    for line in sys.stdin:
        job = json.loads(line)
        sweep = Sweep(job["op"], job["dtype"], job["seed"], job["samples"])
        try:
            samples = sweep.samples()
        except Exception as e:  # noqa: BLE001 - the database cannot make them here
            _say(done=True, message=f"no samples: {type(e).__name__}: {str(e)[:200]}")
            continue
        for i, sample in samples:
            if i in job["skip"]:
                continue
            _say(begin=i)
            _say(end=i, **sweep.sample(sample, job["backend"], job["reference"]))
        _say(done=True)


def _say(**answer: Any) -> None:
    _answers.write(json.dumps(answer) + "\n")
    _answers.flush()


if __name__ == "__main__":
    main()
