"""Generated Triton kernels, proven without a device.

Each case is a function of PyTorch's, with the gradients it takes. Its kernels run in Triton's interpreter against a
double-precision run, and are held to twice eager's own error and a unit in the last place; some are compiled for sm_90.
"""

from __future__ import annotations

import json
import re
import tempfile

import pytest
import torch
from kernels import compiled, interpreter, trace
from kernels.cases import (
    ASCEND,
    BINARY,
    CASES,
    FUNCTIONS,
    adamw,
    bias_gelu,
    bools,
    cross_entropy,
    embedding,
    gradient_alone,
    in_dtype,
    integers,
    ints,
    layer_norm,
    long_softmax,
    name_of,
    rand,
    softmax,
    special,
    sums,
    sums_of_middle,
    transposed,
)
from permalloy import _core


@pytest.fixture(scope="module")
def interpret():
    with interpreter.Interpreter() as it:
        yield it


def as_tuple(y):
    return y if isinstance(y, tuple) else (y,)


def check(got, f, inputs):
    """Twice eager's own error against doubles, and a unit in the last place.

    A plain sum may cancel to nearly nothing, and one that eager happens to get right says nothing of the next: there the
    last place is that of the sum of magnitudes, which every order of adding passes through.
    """
    doubles = in_dtype(inputs, torch.float64)
    wanted, eager = as_tuple(f(*doubles)), as_tuple(f(*inputs))
    scales = as_tuple(f(*(x.abs() for x in doubles))) if f in (sums, sums_of_middle) else wanted
    assert len(got) == len(wanted)
    for ours, want, theirs, scale in zip(got, wanted, eager, scales, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        if not ours.is_floating_point():
            assert torch.equal(ours, theirs)
            continue
        unit = torch.finfo(ours.dtype).eps
        error, own = (ours.double() - want).abs(), (theirs.double() - want).abs()
        bound = 2 * own.max() + unit * scale.abs() + 1e-30
        assert (error <= bound).all(), f"{(error / bound).max():.2f} of the bound"


@pytest.mark.parametrize(
    ("dtype", "dynamic"), [(torch.float32, False), (torch.bfloat16, True)], ids=["f32-static", "bf16-dynamic"]
)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_interpreted(interpret, case, dtype, dynamic):
    f, inputs = case
    inputs = in_dtype(inputs, dtype)
    (program,), _ = trace.programs(f, inputs, dynamic=dynamic)
    got = interpret.run(program, inputs, trace.symbols_of(program, inputs))
    check(got, f, inputs)


@pytest.mark.parametrize("case", ASCEND, ids=name_of)
def test_interpreted_as_for_ascend(interpret, case):
    """Programs that walk tiles, affine indices: other loops, the same results."""
    f, inputs = case
    (program,), _ = trace.programs(f, inputs, "ascend-a5")
    check(interpret.run(program, inputs), f, inputs)


@pytest.mark.parametrize("tile", [(2, 64, 1), (16, 16, 2)])
def test_tile_sizes_change_no_result(interpret, tile):
    for f, inputs in (CASES[1], CASES[3], CASES[6], CASES[16]):
        (program,), _ = trace.programs(f, inputs, tile=tile)
        if f is not sums or tile[0] > 2:
            check(interpret.run(program, inputs), f, inputs)


def test_other_sizes_than_traced(interpret):
    traced = [rand(33, 70), rand(70), rand(70), rand(33, 70)]
    (program,), _ = trace.programs(layer_norm, traced, dynamic=True)
    for rows, cols in ((5, 130), (700, 24), (2, 3000)):
        inputs = [rand(rows, cols), rand(cols), rand(cols), rand(rows, cols)]
        check(interpret.run(program, inputs, trace.symbols_of(program, inputs)), layer_norm, inputs)


def test_nan_and_infinity(interpret):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1.0, nan, 3.0, inf], [-inf, 2.0, 2.0, -1.0], [nan, nan, inf, 0.0], [-inf, -inf, -inf, -inf]])
    inputs = [x, x.flip(1).contiguous()]
    (program,), _ = trace.programs(special, inputs)
    got = interpret.run(program, inputs)
    for ours, theirs in zip(got, special(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_a_long_row_with_infinities_in_one_pass(interpret):
    inf, nan, least = float("inf"), float("nan"), torch.finfo(torch.float32).min
    x = rand(9, 8300)
    x[0], x[1], x[2] = -inf, least, x[2].abs() * least
    x[3, 100:], x[4, 8299], x[5, 4000], x[6, ::3] = -inf, inf, nan, -inf
    x[7], x[8] = torch.arange(8300.0) * 0.1, torch.arange(8300.0) * -0.1
    (program,), _ = trace.programs(long_softmax, [x])
    assert any("add_exponential(" in x["source"] for x in trace.launches(program))
    for ours, theirs in zip(interpret.run(program, [x]), long_softmax(x.double()), strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=2e-6, atol=1e-38, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8], ids=str)
def test_integers_wrap_and_round_as_in_eager(interpret, dtype):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.tensor([[low, high, -7, 7], [-8, 8, 0, 100]], dtype=dtype)
    y = torch.tensor([[3, -5, 2, -2], [3, -3, 7, 9]], dtype=dtype)
    s = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 1]], dtype=dtype)
    (program,), _ = trace.programs(integers, [x, y, s])
    for ours, theirs in zip(interpret.run(program, [x, y, s]), integers(x, y, s), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), (ours, theirs)


def test_bools(interpret):
    a, b = rand(5, 9) > 0.3, rand(5, 9) > 0
    a[1] = True
    (program,), _ = trace.programs(bools, [a, b])
    for ours, theirs in zip(interpret.run(program, [a, b]), bools(a, b), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_one_number(interpret, name):
    """Within 6 units of the last place, infinities, NaN and tiny numbers included."""
    magnitudes = torch.tensor(
        [0.0, 1e-30, 1e-10, 1e-4, 0.01, 0.3, 0.4999, 0.5, 0.99, 1.0, 1.5, 2.5, 7.3, 20.0, 87.0, 1e5]
    )
    x = torch.cat([magnitudes, -magnitudes, torch.tensor([float("inf"), float("-inf"), float("nan")])])

    def f(x):
        return FUNCTIONS[name](x)

    (program,), _ = trace.programs(f, [x])
    (got,) = interpret.run(program, [x])
    close_in_units(got, f(x.double()), 6, floor=1e-6 if name in ("sin", "cos", "tan") else 0)


@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_numbers(interpret, name):
    inf = float("inf")
    numbers = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e-3, -7.25, 40.0, inf, -inf, float("nan")])
    x, y = (t.contiguous() for t in torch.meshgrid(numbers, numbers, indexing="ij"))

    def f(x, y):
        return BINARY[name](x, y)

    (program,), _ = trace.programs(f, [x, y])
    (got,) = interpret.run(program, [x, y])
    close_in_units(got, f(x.double(), y.double()), 2)


def close_in_units(got, want, units, floor=0.0):
    want = want.float().double().where(want.abs() > 3.4e38, want)
    same = (got.double() == want) | (got.isnan() & want.isnan())
    bound = units * 2**-24 * want.abs() + floor + 1e-44
    far = ~same & ~((got.double() - want).abs() <= bound)
    assert not far.any(), (got[far], want[far])


@pytest.mark.parametrize("tokens", ["spread", "hot", "one", "runs"])
def test_sorted_scatter(interpret, tokens):
    """Runs of equal indices within a chunk of 4, at its edges, across two chunks and across very many."""
    index = {
        "spread": ints(20, 30),
        "hot": torch.where(rand(45) > 0, 7, ints(20, 45)),
        "one": torch.full((37,), 19),
        "runs": torch.arange(20).repeat_interleave(2)[:39],
    }[tokens]
    for dtype, dynamic in ((torch.float32, False), (torch.bfloat16, True)):
        inputs = in_dtype([rand(20, 12), index, rand(len(index), 12)], dtype)
        (program,), _ = trace.programs(embedding, inputs, dynamic=dynamic, deterministic=True, tile=(4, 16, 1))
        check(interpret.run(program, inputs, trace.symbols_of(program, inputs)), embedding, inputs)


def test_index_out_of_range_is_a_fault(interpret):
    w, i, g = rand(10, 4), ints(10, 6), rand(6, 4)
    for deterministic in (False, True):
        (program,), _ = trace.programs(embedding, [w, i, g], deterministic=deterministic)
        outside = i.clone()
        outside[3] = 10
        with pytest.raises(IndexError, match="index out of range of "):
            interpret.run(program, [w, outside, g])


def test_scatter_out_of_range_is_a_fault(interpret):
    for deterministic in (False, True):
        (program,), _ = trace.programs(gradient_alone, [rand(6, 4), ints(10, 6)], deterministic=deterministic)
        with pytest.raises(IndexError, match="index out of range of "):
            interpret.run(program, [rand(6, 4), torch.tensor([0, 1, 2, 12, 4, 5])])


# --- compiled without a device ---


def streams(*shape):
    return [rand(*shape), rand(*shape)]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        ((bias_gelu, [rand(256, 768), rand(768)]), torch.bfloat16),
        ((softmax, streams(64, 1024)), torch.float32),
        ((softmax, streams(8, 16384)), torch.bfloat16),
        ((layer_norm, [rand(4096, 768), rand(768), rand(768), rand(4096, 768)]), torch.bfloat16),
        ((cross_entropy, [rand(64, 32768), ints(32768, 64)]), torch.bfloat16),
        ((adamw, streams(65536) + streams(65536)), torch.float32),
        ((transposed, [rand(128, 256), rand(256, 128)]), torch.float32),
    ],
    ids=lambda v: name_of(v) if isinstance(v, tuple) else str(v),
)
def test_compiles_for_sm_90_with_wide_accesses(case, dtype):
    """Every stream of whole rows is read and written 16 bytes at a time."""
    f, inputs = case
    inputs = in_dtype(inputs, dtype)
    (program,), _ = trace.programs(f, inputs)
    seen = False
    with tempfile.TemporaryDirectory() as folder:
        for launch in trace.launches(program):
            made = compiled.compile_launch(launch, folder)
            assert made.asm["cubin"]
            if launch["kernel"].endswith("_total") or launch["programs"] == "1":
                continue
            assert "ld.global.v4.b32" in made.asm["ptx"], launch["source"]
            assert "ld.local" not in made.asm["ptx"], "registers spill"
            seen |= "st.global.v4.b32" in made.asm["ptx"]
    assert seen


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_every_kernel_of_an_operator_compiles_for_sm_90(case):
    """What the interpreter ran for known sizes also becomes machine code, and keeps its values in registers."""
    f, inputs = case
    (program,), _ = trace.programs(f, inputs)
    with tempfile.TemporaryDirectory() as folder:
        for launch in trace.launches(program):
            made = compiled.compile_launch(launch, folder)
            assert made.asm["cubin"].startswith(b"\x7fELF")
            # Sines of large arguments take a table on the stack.
            assert "ld.local" not in made.asm["ptx"] or "tl.sin(" in launch["source"], launch["kernel"]


def test_scatter_adds_in_f32():
    (program,), _ = trace.programs(embedding, [rand(100, 16).bfloat16(), ints(100, 40), rand(40, 16).bfloat16()])
    with tempfile.TemporaryDirectory() as folder:
        texts = [compiled.compile_launch(x, folder).asm["ptx"] for x in trace.launches(program)]
    assert any(re.search(r"(red|atom)\.global\S*\.add\.(v\d\.)?f32", t) for t in texts)


SWAP = """graph "swap" inference {
  input %a: f32[300]
  input %b: f32[300]
  %t: f32[300] strides=[1] = aten.clone.default(%a)
  %u: f32[300] strides=[1] = aten.copy_.default(%a, %b)
  %v: f32[300] strides=[1] = aten.copy_.default(%b, %t)
  output %u
  output %v
}"""


def test_memory_is_read_before_it_is_overwritten(interpret):
    a, b = rand(300), rand(300)
    (program,) = json.loads(_core.triton_sources(SWAP, "cuda-sm90"))
    assert all("launches" in s for s in program["steps"]), program["steps"]
    got = interpret.run(program, [a, b])
    assert torch.equal(got[0], b) and torch.equal(got[1], a)


LARGE = """graph "large" inference {
  input %x: bf16[70000, 50176] strides=[50176, 1]
  %y: bf16[70000, 50176] = aten._softmax.default(%x, 1, false)
  %z: bf16[70000, 50176] = aten.neg.default(%x)
  output %y
  output %z
}"""


def test_addresses_beyond_32_bits_are_64_bits_wide():
    (program,) = json.loads(_core.triton_sources(LARGE, "cuda-sm90"))
    with tempfile.TemporaryDirectory() as folder:
        for launch in trace.launches(program):
            assert "tl.program_id(0).to(tl.int64)" in launch["source"]
            assert "ld.global.v4.b32" in compiled.compile_launch(launch, folder).asm["ptx"]


def test_sorted_scatter_compiles():
    inputs = [rand(100, 768).bfloat16(), ints(100, 4096), rand(4096, 768).bfloat16()]
    (program,), _ = trace.programs(embedding, inputs, deterministic=True)
    with tempfile.TemporaryDirectory() as folder:
        texts = [compiled.compile_launch(x, folder).asm["ptx"] for x in trace.launches(program)]
    assert len(texts) == 4
    assert not any(re.search(r"(red|atom)\.global", t) for t in texts)


@pytest.mark.parametrize("device", ["cuda-sm80", "cuda-sm90", "cuda-sm100", "ascend-a2", "ascend-a5"])
def test_the_same_graph_gives_the_same_text(device):
    inputs = [rand(33, 70), rand(70), rand(70), rand(33, 70)]
    first, _ = trace.programs(layer_norm, inputs, device)
    second, _ = trace.programs(layer_norm, inputs, device)
    assert first == second
    assert all("launches" in s for s in first[0]["steps"])
