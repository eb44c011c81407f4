"""The contract on numbers: every operator with a rule, as the engine runs it, against eager and double precision.

For every result: error against the exact one at most twice eager's, plus one unit in the last place. Where half a unit of
f32 in the operands changes a result more than that (sums that cancel), such a change stands for eager's error: a single
number is exact by luck now and then.
"""

from __future__ import annotations

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


def wide(a):
    """The argument with floats in float64."""
    if isinstance(a, torch.Tensor):
        return a.double() if a.is_floating_point() else a
    if isinstance(a, torch.dtype):
        return torch.float64 if a.is_floating_point else a
    return [wide(x) for x in a] if isinstance(a, (list, tuple)) else a


def flat(results):
    return [t for r in results for t in flat(r)] if isinstance(results, (list, tuple)) else [results]


def nudged(a):
    """As ``wide``, with floats half a unit of f32 larger."""
    if isinstance(a, torch.Tensor) and a.is_floating_point():
        return a.double() + a.double().abs() * torch.finfo(torch.float32).eps / 2
    return [nudged(x) for x in a] if isinstance(a, (list, tuple)) else wide(a)


def exactly(sample, of=wide):
    """What the operator gives in double precision."""
    call = sample.reference or sample.operator()
    torch.set_default_dtype(torch.float64)  # results of integers
    try:
        return flat(call(*map(of, sample.args), **{k: of(a) for k, a in sample.kwargs.items()}))
    finally:
        torch.set_default_dtype(torch.float32)


class Wrong(AssertionError):
    """A result of another type, or another special value."""


def errors(got, eager, exact):
    """The largest errors of ``got`` and of ``eager`` as a share of the largest value; Wrong where they are of no kind."""
    if (got.dtype, got.shape) != (eager.dtype, eager.shape):
        raise Wrong(f"{got.dtype}{list(got.shape)}, eager {eager.dtype}{list(eager.shape)}")
    g, e, x = (t.double().flatten() for t in (got, eager, exact))
    finite = g.isfinite() & e.isfinite() & x.isfinite()
    odd = ~finite & ~((g == e) | (g.isnan() & e.isnan())) & ~(g == x)
    if odd.any():
        raise Wrong(f"{g[odd][:3].tolist()} where eager has {e[odd][:3].tolist()}")
    if not finite.any():
        return 0.0, 0.0
    g, e, x = g[finite], e[finite], x[finite]
    size = x.abs().max().clamp(min=torch.finfo(got.dtype).tiny)
    return float((g - x).abs().max() / size), float((e - x).abs().max() / size)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.split("_")[-1])
def test_error_is_at_most_twice_eagers_and_one_ulp(module):
    """Judged by operator and dtype, over all of its samples: in a single number eager is exact by luck."""
    torch.manual_seed(0)
    options = Options.of_config()
    worst, wrong = {}, []
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
            try:
                ours, theirs = errors(g, e, x)
                if ours > 2 * theirs + torch.finfo(e.dtype).eps:
                    theirs = max(theirs, errors(g.double(), exactly(sample, nudged)[i].double(), x)[1])
            except Wrong as wrong_type:
                wrong.append(f"{sample} result {i}: {wrong_type}")
                continue
            known, eagers = worst.get((sample.name, i, e.dtype), ((0.0, ""), 0.0))
            worst[sample.name, i, e.dtype] = max(known, (ours, str(sample))), max(eagers, theirs)
    for (name, i, dtype), ((ours, where), theirs) in worst.items():
        if ours > 2 * theirs + torch.finfo(dtype).eps:
            wrong.append(
                f"{name} result {i} {dtype}: error {ours:.3g}, eager's {theirs:.3g}, of the largest value in {where}"
            )
    assert len(worst) >= 9
    assert wrong == [], f"{len(wrong)} of {len(worst)} wrong:\n" + "\n".join(wrong[:60])
