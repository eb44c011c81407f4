"""The contract on numbers: every operator with a rule, as the engine runs it, against eager and double precision.

For every result: the largest error is at most twice eager's and one unit in the last place of the largest value. A result
of a few numbers, in which eager is exact by luck now and then, is judged together with the others of its operator and dtype.
"""

from __future__ import annotations

import math

import pytest
import torch
from permalloy import _core
from permalloy.backend import Options
from rules import (
    samples_activation,
    samples_foreach,
    samples_index,
    samples_loss,
    samples_matmul,
    samples_norm,
    samples_pointwise,
    samples_reduction,
    samples_softmax,
    samples_view,
)

MODULES = [samples_activation, samples_foreach, samples_index, samples_loss, samples_matmul, samples_norm]
MODULES += [samples_pointwise, samples_reduction, samples_softmax, samples_view]

# Doubles have nothing more exact to be judged by.
JUDGED = {torch.float32, torch.bfloat16, torch.float16}
#: Fewer values than this are few.
FEW = 6


def wide(a):
    """The argument with floats in float64."""
    if isinstance(a, torch.Tensor):
        return a.double() if a.is_floating_point() else a
    if isinstance(a, torch.dtype):
        return torch.float64 if a.is_floating_point else a
    return [wide(x) for x in a] if isinstance(a, (list, tuple)) else a


def flat(results):
    return [t for r in results for t in flat(r)] if isinstance(results, (list, tuple)) else [results]


def exactly(sample):
    """What the operator gives in double precision."""
    call = sample.reference or sample.operator()
    torch.set_default_dtype(torch.float64)  # results of integers
    try:
        return flat(call(*map(wide, sample.args), **{k: wide(a) for k, a in sample.kwargs.items()}))
    finally:
        torch.set_default_dtype(torch.float32)


class Wrong(AssertionError):
    """A result of another type, or another special value."""


def errors(got, eager, exact):
    """The largest errors of ``got`` and of ``eager`` in units of the last place of the largest value, and how many values were
    compared; Wrong where they are of no kind."""
    if (got.dtype, got.shape) != (eager.dtype, eager.shape):
        raise Wrong(f"{got.dtype}{list(got.shape)}, eager {eager.dtype}{list(eager.shape)}")
    dtype = torch.finfo(got.dtype)
    g, e, x = (t.double().flatten() for t in (got, eager, exact))
    finite = g.isfinite() & e.isfinite() & (x.abs() <= dtype.max)
    odd = ~finite & ~((g == e) | (g.isnan() & e.isnan())) & ~(g == x)
    if odd.any():
        raise Wrong(f"{g[odd][:3].tolist()} where eager has {e[odd][:3].tolist()}")
    if not finite.any():
        return 0.0, 0.0, 0
    g, e, x = g[finite], e[finite], x[finite]
    unit = dtype.eps * 2.0 ** math.floor(math.log2(float(x.abs().max().clamp(min=dtype.tiny))))
    return float((g - x).abs().max()) / unit, float((e - x).abs().max()) / unit, len(x)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.split("_")[-1])
def test_error_is_at_most_twice_eagers_and_one_ulp(module):
    torch.manual_seed(0)
    options = Options.of_config()
    pooled, wrong, count = {}, [], 0
    for sample in module.samples():
        promised = flat(sample.eager())
        if not any(t is not None and t.dtype in JUDGED for t in promised):
            continue
        exact = exactly(sample)
        compiled = _core.compile_graph(sample.graph(promised), options)
        got = compiled([t.detach().clone().contiguous() for t in sample.tensors])
        for i, (g, e, x) in enumerate(zip(got, promised, exact, strict=True)):
            if e is None or e.dtype not in JUDGED:
                continue
            count += 1
            try:
                ours, theirs, values = errors(g, e, x)
            except Wrong as wrong_type:
                wrong.append(f"{sample} result {i}: {wrong_type}")
                continue
            few, eagers = pooled.get((sample.name, i, e.dtype), ((0.0, ""), 0.0))
            if values < FEW:
                few = max(few, (ours, str(sample)))
            pooled[sample.name, i, e.dtype] = few, max(eagers, theirs)
            if values >= FEW and ours > 2 * theirs + 1:
                wrong.append(f"{sample} result {i}: error {ours:.3g}, eager's {theirs:.3g} ulp")
    for (_, i, _), ((ours, where), theirs) in pooled.items():
        if ours > 2 * theirs + 1:
            wrong.append(f"{where} result {i}: error {ours:.3g}, eager's {theirs:.3g} ulp among its like")
    assert count >= 50
    assert wrong == [], f"{len(wrong)} of {count} wrong:\n" + "\n".join(wrong[:60])
