"""Every decomposition rule against eager PyTorch, operator by operator.

Each sample is one call. Eager gives the expected results and the types they are promised in; the reference interpreter
evaluates what the operator's rule emits, in f64, once with static and once with symbolic sizes.
"""

import os
import pathlib
import subprocess

import pytest
import torch
from rules import samples_activation, samples_loss, samples_norm, samples_pointwise, samples_softmax
from rules.sample import DTYPES

ROOT = pathlib.Path(__file__).parents[2]

# Sample modules with the topics of `crates/ops/src/rules` that they cover.
MODULES = {
    samples_pointwise: ["pointwise", "compare", "convert"],
    samples_activation: ["activation"],
    samples_norm: ["norm"],
    samples_softmax: ["softmax"],
    samples_loss: ["loss"],
}

NO_SAMPLE = {
    "aten.to.device": "needs a second device to differ from to.dtype",
    "aten.to.dtype_layout": "the schema of _to_copy",
    "aten.empty_like.default": "declines always",
}

RTOL = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 1.6e-2}
ATOL = {torch.float64: 1e-11, torch.float32: 1e-6, torch.bfloat16: 1e-2}
# Eager multiplies by the f32 nearest to 1/6, for f64 too.
LOOSE = {"aten.hardsigmoid_backward.default"}
# A scalar rounded to the tensor's dtype decides the result, which ideal arithmetic does not round.
ROUNDED = {f"aten.{name}.Scalar" for name in ("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod")}


def runner():
    """Builds the runner once and gives its path."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    subprocess.run(
        ["cargo", "build", "-q", "-j2", "-p", "permalloy-interp", "--example", "run_samples"], cwd=ROOT, check=True
    )
    return target / "debug" / "examples" / "run_samples"


def input_line(t):
    t = t.contiguous()
    values = t.double() if t.is_floating_point() else t.long()
    shape = ",".join(map(str, t.shape))
    return f"input {DTYPES[t.dtype]} [{shape}] {' '.join(map(repr, values.flatten().tolist()))}"


def answers(graphs):
    """Results of every (sample, graph), each a list of value lists, or the error as text."""
    text = []
    for sample, graph in graphs:
        run = "run rounded" if sample.name in ROUNDED else "run"
        text += [graph.rstrip("\n"), *map(input_line, sample.tensors), run]
    done = subprocess.run([runner()], input="\n".join(text) + "\n", capture_output=True, text=True, check=True)
    out, current = [], []
    for line in done.stdout.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "end":
            out.append(current)
            current = []
        elif kind == "error":
            current = rest
        else:
            current.append(None if rest == "none" else rest.split())
    assert len(out) == len(graphs), done.stderr[-2000:]
    return out


@pytest.fixture(scope="module", params=MODULES, ids=lambda m: m.__name__.split("_")[-1])
def outcomes(request):
    """A module with (sample, expected, static answer, symbolic answer) of each of its samples."""
    samples = list(request.param.samples())
    expected = [s.eager() for s in samples]
    static = [(s, s.graph(e)) for s, e in zip(samples, expected)]
    symbolic = [(s, s.graph(e, symbolic=True)) for s, e in zip(samples, expected)]
    given = answers(static + symbolic)
    return request.param, list(zip(samples, expected, given[: len(samples)], given[len(samples) :]))


def differs(sample, answer, expected):
    """What is wrong with an answer, or None."""
    if isinstance(answer, str):
        return answer
    floats = [t.dtype for t in sample.tensors + [e for e in expected if e is not None] if t.is_floating_point()]
    lowest = max(floats, key=list(RTOL).index, default=torch.float64)
    for i, (got, want) in enumerate(zip(answer, expected, strict=True)):
        if want is None:
            if got is not None:
                return f"result {i} was not asked for"
            continue
        parse = float if want.is_floating_point() else int
        got = torch.tensor([parse(x) for x in got], dtype=torch.float64 if parse is float else torch.int64)
        got = got.reshape(want.shape).to(want.dtype)
        if not want.is_floating_point():
            same = got == want
        else:
            rtol = 1e-7 if sample.name in LOOSE and lowest == torch.float64 else RTOL[lowest]
            same = torch.isclose(got.double(), want.double(), rtol=rtol, atol=ATOL[lowest], equal_nan=True)
        if not same.all():
            return f"result {i}: {got[~same][:4].tolist()}, eager {want[~same][:4].tolist()}"
    return None


def test_rules_agree_with_eager(outcomes):
    wrong = []
    for sample, expected, static, symbolic in outcomes[1]:
        for kind, answer in (("static", static), ("symbolic", symbolic)):
            problem = differs(sample, answer, expected)
            if problem:
                wrong.append(f"{sample} {kind}: {problem[:200]}")
    assert wrong == [], f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])


def test_every_operator_with_a_rule_has_a_sample(outcomes):
    module, cases = outcomes
    listed = subprocess.run([runner(), "--list"], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    names = [name for topic, name in pairs if topic in MODULES[module]]
    sampled = {case[0].name for case in cases}
    assert names, "no such topic"
    assert [n for n in names if n not in sampled and n not in NO_SAMPLE] == []
