"""The contracts of the gradients that give an operand back its shape: matmul_backward, the slice family,
embedding_dense_backward. One test for each point; graphs in text form, decomposed by the compiler and run by the engine.
"""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from permalloy import _core, config
from permalloy.backend import Options
from rules.sample import type_of
from rules.samples_matmul import MASKS, SHAPES, gradients

close = torch.testing.assert_close
ROUTES = ("fold", "batched")


def graph(call, inputs, results, symbols=()):
    """A graph of one operator; types are those of the tensors given, or text. Symbols are read off inputs of their own."""

    def typed(t):
        if isinstance(t, str):
            return t
        return type_of(t) + (f" strides=[{', '.join(map(str, t.stride()))}]" if t.ndim else "")

    made = [
        f"%r{i}: {t if isinstance(t, str) else type_of(t)}" if t is not None else "_" for i, t in enumerate(results)
    ]
    lines = ['graph "one" inference {', *[f"  symbol {s} hint={n} range=[2, inf]" for s, n in dict(symbols).items()]]
    lines += [f"  input %of_{s}: bool[{s}]" for s in dict(symbols)]
    lines += [f"  input %{name}: {typed(t)}" for name, t in inputs.items()]
    lines += [f"  {', '.join(made)} = {call}"]
    lines += [f"  output %r{i}" if t is not None else "  output none" for i, t in enumerate(results)]
    return "\n".join([*lines, "}", ""])


def compiled(text, **options):
    with config.patch(**options):
        return _core.compile_graph(text, Options.of_config())


def ran(text, *tensors, **options):
    return compiled(text, **options)([t.detach() for t in tensors])


def sizes(*given):
    """Inputs that symbols are read off."""
    return [torch.zeros(n, dtype=torch.bool) for n in given]


def after(stages, text, tmp_path):
    """The graph as it is after some stages of the compiler, as text."""
    path = tmp_path / "graph.pm"
    path.write_text(text)
    return _core.command(["opt", "--stage", stages, str(path)])[1]


def product(grad, left, right, mask=(True, True)):
    bits = ", ".join(str(bit).lower() for bit in mask)
    results = [x if bit else None for x, bit in zip((left, right), mask)]
    return graph(f"aten.matmul_backward.default(%g, %a, %b, [{bits}])", {"g": grad, "a": left, "b": right}, results)


def routed(route):
    return {"aten.matmul_backward.default": f"matmul_backward::{route}"}


def operands(left, right, dtype=torch.float32):
    a, b = torch.randn(left).to(dtype), torch.randn(right).to(dtype)
    return torch.randn_like(torch.matmul(a, b)), a, b


# --- matmul_backward: the ten points of its contract


@pytest.mark.parametrize("route", ROUTES)
def test_matmul_1_each_gradient_has_its_operands_shape(route):
    for left, right in SHAPES:
        given = operands(left, right)
        got = ran(product(*given), *given, routes=routed(route))
        for mine, operand, want in zip(got, given[1:], gradients(*given, [True, True])):
            assert mine.shape == operand.shape, (left, right)
            close(mine, want)


def test_matmul_2_a_false_bit_emits_nothing(tmp_path):
    for (left, right), mask in itertools.product(SHAPES, MASKS):
        given = operands(left, right)
        text = product(*given, mask)
        for mine, want in zip(ran(text, *given), gradients(*given, mask)):
            assert (mine is None) == (want is None)
        body = [line for line in after("route", text, tmp_path).splitlines() if " = " in line]
        if mask == [False, False]:
            assert body == []
        for bit, own in zip(mask[::-1], ("%a", "%b")):  # of the operands, only the other gradient reads this one
            assert bit or not any(f"({own}" in line or f", {own}" in line for line in body), (left, right, mask)
        assert sum("aten." in line for line in body) <= sum(mask)


def test_matmul_3_layouts_need_no_copy(tmp_path):
    """Permuted, expanded and transposed gradients; by the batched route they go to the product as they are."""
    for left, right in [((2, 4, 3), (3, 6)), ((3,), (2, 3, 6)), ((2, 4, 3), (2, 3, 6)), ((4, 3), (2, 3, 6))]:
        grad, a, b = operands(left, right)
        backwards = list(range(grad.ndim))[::-1]
        layouts = [
            torch.randn(*grad.shape[::-1]).permute(backwards),
            torch.randn(()).expand(grad.shape),
            grad.mT.contiguous().mT if grad.ndim > 1 else grad,
        ]
        for g, route in itertools.product(layouts, ROUTES):
            x = a.mT.contiguous().mT if a.ndim > 1 else a
            for mine, want in zip(
                ran(product(g, x, b), g, x, b, routes=routed(route)), gradients(g, x, b, [True, True])
            ):
                close(mine, want)
    g, a, b = torch.randn(6, 4, 2).permute(2, 1, 0), torch.randn(2, 4, 3), torch.randn(2, 3, 6)
    program = after("route,simplify,lower", product(g, a, b), tmp_path)
    assert program.count("native aten.bmm.default") == 2 and "kernel" not in program, program


def test_matmul_4_empty_sizes_give_zeros():
    empty = [pair for pair in SHAPES if 0 in pair[0] + pair[1]]
    assert len(empty) > 5
    for (left, right), route in itertools.product(empty, ROUTES):
        given = operands(left, right)
        for mine, operand in zip(ran(product(*given), *given, routes=routed(route)), given[1:]):
            assert mine.shape == operand.shape and not mine.any()


def test_matmul_5_mixed_dtypes_promote_and_return():
    kinds = (torch.float32, torch.bfloat16, torch.float64)
    for dtypes in itertools.product(kinds, repeat=3):
        given = [x.to(d) for x, d in zip(operands((2, 4, 3), (3, 6)), dtypes)]
        exact_ones = gradients(*[x.double() for x in given], [True, True])
        g, a, b = given
        theirs = [
            gradients(g, a.to(torch.promote_types(g.dtype, b.dtype)), b, [True, False])[0].to(a.dtype),
            gradients(g, a, b.to(torch.promote_types(g.dtype, a.dtype)), [False, True])[1].to(b.dtype),
        ]
        for mine, operand, eager, exact in zip(ran(product(*given), *given), (a, b), theirs, exact_ones):
            assert mine.dtype == operand.dtype
            unit = torch.finfo(mine.dtype).eps * exact.abs().max()
            assert (mine - exact).abs().max() <= 2 * (eager - exact).abs().max() + unit, dtypes


def test_matmul_6_a_batch_of_one_folds_and_sizes_stay_symbolic(tmp_path):
    plain = after("route,simplify", product(*operands((5, 4, 3), (3, 6))), tmp_path)
    batch_of_one = after("route,simplify", product(*operands((5, 4, 3), (1, 3, 6))), tmp_path)
    for text in (plain, batch_of_one):
        assert (text.count("aten.mm"), text.count("aten.bmm"), text.count("prim.sum")) == (2, 0, 0), text

    types = {"g": "f32[s0, s1, 6]", "a": "f32[s0, s1, 3]", "b": "f32[1, 3, 6]"}
    call = "aten.matmul_backward.default(%g, %a, %b, [true, true])"
    run = compiled(graph(call, types, [types["a"], types["b"]], {"s0": 5, "s1": 4}))
    for batch, rows in ((5, 4), (2, 9), (7, 7)):
        given = operands((batch, rows, 3), (1, 3, 6))
        for mine, want in zip(run([*sizes(batch, rows), *given]), gradients(*given, [True, True])):
            close(mine, want)


def test_matmul_7_half_operands_go_to_the_product_as_they_are(tmp_path):
    for left, right in [((2, 4, 3), (3, 6)), ((2, 4, 3), (2, 3, 6)), ((4, 3), (2, 3, 6))]:
        given = operands(left, right, torch.bfloat16)
        text = after("route,simplify", product(*given), tmp_path)
        assert "prim.cast" not in text and "f32" not in text, text
    ones = [torch.ones(s, dtype=torch.bfloat16) for s in ((1, 1000, 6), (1, 1000, 3), (3, 6))]
    assert ran(product(*ones), *ones)[1].eq(1000).all()  # a bf16 sum of ones stops at 256


def test_matmul_8_routes_can_be_chosen(tmp_path):
    given = operands((5, 4, 3), (3, 6))
    for route, products in (("fold", "aten.mm"), ("batched", "aten.bmm")):
        made = compiled(product(*given), routes=routed(route))
        (decision,) = json.loads(made.records())
        assert (decision["route"], decision["reason"]) == (f"decompose:matmul_backward::{route}", "override")
        path = tmp_path / f"{route}.pm"
        options = json.dumps({"routes": [["aten.matmul_backward.default", f"matmul_backward::{route}"]]})
        path.write_text(f"// options: {options}\n" + product(*given))
        text = _core.command(["opt", "--stage", "route", str(path)])[1]
        assert products in text and ("prim.sum" in text) == (route == "batched"), text
    with pytest.raises(ValueError, match="native"):
        compiled(product(*given), routes={"aten.matmul_backward.default": "native"})
    with pytest.raises(ValueError, match="matmul_backward::fold"):
        compiled(product(*given), routes={"aten.matmul_backward.default": "matmul_backward::folds"})


EXPANDED = """graph "expanded" joint(forward_outputs=1) {
  input %x: f32[64, 8, 16] strides=[16, 1024, 1]
  input %w: f32[16, 5] strides=[5, 1]
  input %t: f32[64, 8, 5] strides=[40, 5, 1] role=tangent
  %we: f32[64, 16, 5] strides=[0, 5, 1] = aten.expand.default(%w, [64, 16, 5])
  %wv: f32[64, 16, 5] strides=[0, 5, 1] = aten.view.default(%we, [64, 16, 5])
  %y: f32[64, 8, 5] = aten.bmm.default(%x, %wv)
  %wt: f32[64, 5, 16] strides=[0, 1, 5] = aten.transpose.int(%wv, 1, 2)
  %dx: f32[64, 8, 16] = aten.bmm.default(%t, %wt)
  output %y
  output %dx
}
"""


def test_matmul_9_an_expanded_operand_is_never_materialised(tmp_path):
    """`expand -> view -> bmm`, which PyTorch makes of a transposed batch times a frozen matrix."""
    program = after("route,algebra,simplify,lower", EXPANDED, tmp_path)
    assert program.count("native aten.bmm.default") == 2 and "kernel" not in program, program
    assert program.count("b1[64, 16, 5] strides=[0, 5, 1]") == program.count("b1[64, 5, 16] strides=[0, 1, 5]") == 1

    x, w = torch.randn(8, 64, 16, requires_grad=True), torch.randn(16, 5)
    step = lambda x, w: (x.transpose(0, 1) @ w).sin().sum()  # noqa: E731
    (mine,) = torch.autograd.grad(torch.compile(step, backend="permalloy")(x, w), x)
    (want,) = torch.autograd.grad(step(x, w), x)
    close(mine, want)


# Point 10, capture_matmul: tests/python/test_capture.py.


# --- slice_backward, select_backward, diagonal_backward, unfold_backward


def transposed(call, grad, sizes, **options):
    """A gradient that is written into zeros of some sizes."""
    into = torch.empty(sizes, dtype=grad.dtype)
    return ran(graph(call, {"g": grad}, [into]), grad, **options)[0]


def through(view, sizes, grad):
    x = torch.zeros(sizes, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(view(x), x, grad.double())[0].to(grad.dtype)


BOUNDS = [
    (0, 9223372036854775807, 1),
    (1, 4, 1),
    (-3, -1, 1),
    (2, 100, 3),
    (0, 7, 2),
    (-100, 3, 2),
    (4, 4, 1),
    (6, 2, 1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_slice_backward_of_every_bound_and_step(dtype):
    for (start, end, step), dim in itertools.product(BOUNDS, (0, 1, -1)):
        view = lambda x: torch.ops.aten.slice(x, dim, start, end, step)  # noqa: B023, E731
        grad = torch.randn(view(torch.empty(7, 5)).shape).to(dtype)
        call = f"aten.slice_backward.default(%g, [7, 5], {dim}, {start}, {end}, {step})"
        for route in ("decompose", "native"):
            got = transposed(call, grad, (7, 5), routes={"aten.slice_backward.default": route})
            close(got, through(view, (7, 5), grad), rtol=0, atol=0)


def test_slice_backward_of_symbolic_bounds():
    call = "aten.slice_backward.default(%g, [s0, 4], 0, 1, s0, 1)"
    run = compiled(graph(call, {"g": "f32[s0 - 1, 4]"}, ["f32[s0, 4]"], {"s0": 6}))
    call = "aten.slice_backward.default(%g, [s0, s1], 1, 0, floordiv(s1, 2), 1)"
    half = compiled(graph(call, {"g": "f32[s0, floordiv(s1, 2)]"}, ["f32[s0, s1]"], {"s0": 3, "s1": 8}))
    for n in (2, 6, 9):
        grad = torch.randn(n - 1, 4)
        close(run([*sizes(n), grad])[0], through(lambda x: x[1:], (n, 4), grad), rtol=0, atol=0)
        grad = torch.randn(5, n // 2)
        got = half([*sizes(5, n), grad])[0]
        close(got, through(lambda x: x[:, : n // 2], (5, n), grad), rtol=0, atol=0)  # noqa: B023


def test_the_rest_of_the_slice_family():
    cases = [
        ("aten.select_backward.default(%g, [4, 5, 3], 1, -2)", (4, 5, 3), lambda x: x.select(1, -2)),
        ("aten.diagonal_backward.default(%g, [4, 5], 1, 0, 1)", (4, 5), lambda x: x.diagonal(1)),
        ("aten.diagonal_backward.default(%g, [4, 5, 3], -2, 2, 0)", (4, 5, 3), lambda x: x.diagonal(-2, 2, 0)),
        ("aten.unfold_backward.default(%g, [4, 9], 1, 3, 2)", (4, 9), lambda x: x.unfold(1, 3, 2)),
        ("aten.unfold_backward.default(%g, [9], 0, 2, 3)", (9,), lambda x: x.unfold(0, 2, 3)),
    ]
    for (call, sizes, view), dtype in itertools.product(cases, (torch.float32, torch.bfloat16)):
        grad = torch.randint(-8, 9, view(torch.empty(sizes)).shape).to(dtype)
        name = call.split("(")[0]
        for route in ("decompose", "native"):
            got = transposed(call, grad, sizes, routes={name: route})
            close(got, through(view, sizes, grad), rtol=0, atol=0)


def test_slice_backwards_of_one_tensor_are_one_kernel(tmp_path):
    """The gradients of a split: neither zeros nor a scatter, and each is read once."""
    parts = [(0, 3), (3, 7), (7, 12)]
    lines = [f"  input %g{i}: f32[4, {b - a}]" for i, (a, b) in enumerate(parts)]
    lines += [
        f"  %s{i}: f32[4, 12] = aten.slice_backward.default(%g{i}, [4, 12], 1, {a}, {b}, 1)"
        for i, (a, b) in enumerate(parts)
    ]
    lines += ["  %u: f32[4, 12] = aten.add.Tensor(%s0, %s1)", "  %v: f32[4, 12] = aten.add.Tensor(%u, %s2)"]
    text = "\n".join(['graph "split" inference {', *lines, "  output %v", "}", ""])
    program = after("route,simplify,lower", text, tmp_path)
    assert program.count("kernel") == 1 and program.count(" load ") == 3 and "native" not in program, program
    grads = [torch.randn(4, b - a) for a, b in parts]
    close(ran(text, *grads)[0], torch.cat(grads, 1), rtol=0, atol=0)


# --- embedding_dense_backward


def table_gradient(grad, index, rows, padding=-1, by_frequency=False, **options):
    call = f"aten.embedding_dense_backward.default(%g, %i, {rows}, {padding}, {str(by_frequency).lower()})"
    into = torch.empty(rows, grad.shape[-1], dtype=grad.dtype)
    return ran(graph(call, {"g": grad, "i": index}, [into]), grad, index, **options)[0]


ROUTES_OF_TABLES = ("decompose", "native")


@pytest.mark.parametrize("route", ROUTES_OF_TABLES)
def test_embedding_padding_frequency_and_index_types(route):
    routes = {"aten.embedding_dense_backward.default": route}
    for kind, padding, by_frequency in itertools.product((torch.int64, torch.int32), (-1, 0, 3), (False, True)):
        index, grad = torch.randint(0, 5, (2, 7)).to(kind), torch.randn(2, 7, 3)
        want = torch.ops.aten.embedding_dense_backward(grad, index, 5, padding, by_frequency)
        got = table_gradient(grad, index, 5, padding, by_frequency, routes=routes)
        close(got, want)
        assert padding < 0 or not got[padding].any()


def test_embedding_sums_in_f32_whatever_the_dtype():
    """1000 equal bf16 ones give 1000; a bf16 sum would stop at 256."""
    for rows in (3, 4000):
        got = table_gradient(torch.ones(1000, 8, dtype=torch.bfloat16), torch.full((1000,), 2), rows)
        assert got[2].eq(1000).all() and got.float().sum() == 8000


def test_embedding_is_the_same_in_each_run_and_with_hot_rows():
    index = torch.cat([torch.full((3000,), 7), torch.randint(0, 50, (1000,))])[torch.randperm(4000)]
    grad = torch.randn(4000, 16)
    first = table_gradient(grad, index, 50)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            assert torch.equal(table_gradient(grad, index, 50), first)
    finally:
        torch.set_num_threads(before)
    exact = torch.zeros(50, 16, dtype=torch.float64).index_add(0, index, grad.double())
    eager = torch.ops.aten.embedding_dense_backward(grad, index, 50, -1, False)
    assert (first - exact).abs().max() <= 2 * (eager - exact).abs().max() + 1e-7 * exact.abs().max()


def test_embedding_index_out_of_range_raises():
    for bad in (5, -1):
        with pytest.raises(Exception, match="index"):
            table_gradient(torch.randn(2, 3), torch.tensor([0, bad]), 5)


def test_embedding_sparse_gradient_runs_natively_with_a_record():
    call = "aten.embedding_backward.default(%g, %i, 5, -1, false, true)"
    text = graph(call, {"g": torch.randn(2, 3), "i": torch.zeros(2, dtype=torch.int64)}, [torch.empty(5, 3)])
    (decision,) = json.loads(compiled(text).records())
    assert (decision["route"], decision["reason"]) == ("native", "rule-declined")
    assert "sparse" in decision["detail"]
