"""Rules for views, reductions, indexing, products and lists against eager PyTorch.

Float operands are compared with eager on the same values in float64: the interpreter computes exactly what the rule
says, so that a wrong formula cannot hide behind the tolerance of a 16-bit dtype. Symbolic cases run at sizes other than
their hints, so that no rule may have read a hint as a size.
"""

import subprocess

import torch
from rules import samples_foreach, samples_index, samples_matmul, samples_reduction, samples_view
from rules.sample import Sample
from rules.symbolic import CASES, S0, S1
from test_rules import answers, runner

TOPICS = ["view", "slice", "creation", "reduction", "index", "matmul", "foreach"]
MODULES = [samples_view, samples_reduction, samples_index, samples_matmul, samples_foreach]

NO_SAMPLE = {
    "aten.as_strided.default": "covers operands of promised strides only: tests/filetests/decompose/as_strided.pm",
    "aten.split.sizes": "arrives as split_with_sizes",
    "aten._reshape_alias.default": "same rule as reshape; its strides argument is ignored",
    "aten._reshape_alias_copy.default": "same rule as reshape",
    "aten._reshape_copy.default": "no kernel to compare with",
    "aten._index_put_impl.default": "same rule as index_put",
}


def wide(a):
    """The argument with floats in float64."""
    if isinstance(a, torch.Tensor):
        return a.double() if a.is_floating_point() else a
    if isinstance(a, torch.dtype):
        return torch.float64 if a.is_floating_point else a
    if isinstance(a, (list, tuple)):
        return [wide(x) for x in a]
    return a


def flat(results):
    return [t for r in results for t in flat(r)] if isinstance(results, (list, tuple)) else [results]


def ideal(sample):
    call = sample.reference or sample.operator()
    return flat(call(*map(wide, sample.args), **{k: wide(a) for k, a in sample.kwargs.items()}))


def differs(answer, promised, wanted):
    """What is wrong with an answer, or None."""
    if isinstance(answer, str):
        return answer
    for i, (got, promise, want) in enumerate(zip(answer, promised, wanted, strict=True)):
        if promise is None:
            if got is not None:
                return f"result {i} was not asked for"
            continue
        want = (want if promise.is_floating_point() else promise).double().flatten()
        got = torch.tensor([float(x) for x in got], dtype=torch.float64)
        if got.shape != want.shape:
            return f"result {i} has {got.numel()} elements, eager {want.numel()}"
        same = torch.isclose(got, want, rtol=1e-9, atol=1e-11, equal_nan=True)
        if not same.all():
            return f"result {i}: {got[~same][:4].tolist()}, eager {want[~same][:4].tolist()}"
    return None


def samples():
    torch.manual_seed(0)
    return [s for module in MODULES for s in module.samples()]


def test_every_declared_operator_has_a_sample():
    sampled = {s.name for s in samples()}
    listed = subprocess.run([runner(), "--list"], capture_output=True, text=True, check=True).stdout
    names = [name for topic, name in map(str.split, listed.splitlines()) if topic in TOPICS]
    assert len(names) > 200
    assert [n for n in names if n not in sampled and n not in NO_SAMPLE] == []


def test_rules_agree_with_eager():
    cases = [(s, flat(s.eager())) for s in samples()]
    assert len(cases) > 4500
    given = answers([(s, s.graph(promised)) for s, promised in cases])
    wrong = []
    for (sample, promised), answer in zip(cases, given):
        problem = differs(answer, promised, ideal(sample))
        if problem:
            wrong.append(f"{sample}: {problem[:300]}")
    assert wrong == [], f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])


def symbolic_graph(inputs, statement):
    lines = ['graph "case" inference {', "  symbol s0 hint=4 range=[2, inf]", "  symbol s1 hint=3 range=[2, inf]"]
    lines += ["  input %n0: bool[s0]", "  input %n1: bool[s1]"]
    lines += [f"  input %{part}" for part in inputs.lstrip("%").split(", %")]
    lines += [f"  {statement}"]
    lines += [f"  output %{part.split(':')[0].strip()}" for part in statement.split(" = ")[0].lstrip("%").split(", %")]
    return "\n".join([*lines, "}"])


def test_symbolic_sizes_need_no_hint():
    torch.manual_seed(0)
    cases = []
    for inputs, statement, tensors, function in CASES:
        tensors = tensors()
        binders = [torch.zeros(S0, dtype=torch.bool), torch.zeros(S1, dtype=torch.bool)]
        wanted = flat(function(*map(wide, tensors)))
        cases.append((Sample(statement, (), {}, None, binders + tensors), symbolic_graph(inputs, statement), wanted))
    given = answers([case[:2] for case in cases])
    wrong = []
    for (sample, _, wanted), answer in zip(cases, given):
        problem = differs(answer, wanted, wanted)
        if problem:
            wrong.append(f"{sample.name}: {problem[:300]}")
    assert wrong == [], "\n".join(wrong)
