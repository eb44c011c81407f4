"""Graphs that once fell back or went wrong: one test per kind of bug, on PyTorch's eager answer."""

from __future__ import annotations

import warnings

import permalloy
import pytest
import torch


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", permalloy.FallbackWarning)
        yield


def copies(args):
    return [copy(a) if isinstance(a, torch.Tensor) else a for a in args]


def copy(a):
    """The same elements at the same places of memory of its own."""
    memory = a.detach().untyped_storage().clone()
    place = (a.storage_offset(), a.shape, a.stride())
    return torch.empty(0, dtype=a.dtype).set_(memory, *place).requires_grad_(a.requires_grad)


def run(fn, args):
    """Outputs, gradients of all leaves, and the arguments afterwards."""
    out = fn(*args)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    roots = [o for o in outs if o.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(r) for r in roots])
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    return outs, [a.grad if a.is_leaf else None for a in tensors], tensors


def agrees(fn, *args, dynamic=None):
    """Compiles ``fn``; results, gradients and written arguments must be eager's. Returns the compiled outputs."""
    got = run(torch.compile(fn, backend="permalloy", fullgraph=True, dynamic=dynamic), copies(args))
    want = run(fn, copies(args))
    exact = run(fn, copies([a.double() if is_float(a) else a for a in args]))
    for mine, theirs, truth in zip(got, want, exact):
        for m, t, x in zip(mine, theirs, truth):
            if is_float(m) and is_float(t) and is_float(x):
                assert_as_good(m, t, x)
            else:
                torch.testing.assert_close(m, t)
    return got


def is_float(x):
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def assert_as_good(mine, theirs, exact):
    """No more than twice eager's own error, plus a few units of the last place of the largest value."""
    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    odd = ~exact.isfinite()
    torch.testing.assert_close(mine[odd], theirs[odd], equal_nan=True)
    if not bool((~odd).any()):
        return
    unit = torch.finfo(mine.dtype).eps * (1 if mine.element_size() == 2 else 8)
    mine, theirs, exact = (v.detach()[~odd].double() for v in (mine, theirs, exact))
    limit = 2 * (theirs - exact).abs().max() + unit * exact.abs().max()
    assert (mine - exact).abs().max() <= limit


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


# --- memory -----------------------------------------------------------------------------------


def distinct(*tensors):
    return len({t.untyped_storage().data_ptr() for t in tensors}) == len(tensors)


@pytest.mark.parametrize("grad", [False, True])
def test_a_clone_that_is_returned_is_no_alias(grad):
    outs, _, (x,) = agrees(lambda x: x.clone(), torch.randn(3, requires_grad=grad))
    assert distinct(outs[0], x)


@pytest.mark.parametrize("grad", [False, True])
def test_an_output_and_its_clone_have_memory_of_their_own(grad):
    def f(x):
        y = x + 1
        return y, y.clone(), y.clone().view(3, 1)

    outs, _, _ = agrees(f, torch.randn(3, requires_grad=grad))
    assert distinct(*outs)


def test_equal_outputs_have_memory_of_their_own():
    outs, _, _ = agrees(lambda x: (torch.zeros(3), torch.zeros(3), x.sin(), x.sin()), torch.randn(3))
    assert distinct(*outs)


def test_equal_gradients_have_memory_of_their_own():
    _, grads, _ = agrees(lambda x, y: x[9:].sum() + y[9:].sum(), leaf(4, 3), leaf(4, 3))
    assert distinct(*grads)


def test_a_clone_keeps_what_was_there_before_a_write():
    def f(x):
        y = x.clone()
        x.mul_(2)
        return y

    agrees(f, torch.randn(3))


def test_writing_to_an_output_that_the_backward_needs_is_noticed():
    def f(a, b):
        y = a @ b
        return y, y.sin() + y.exp()

    y, z = torch.compile(f, backend="permalloy")(leaf(3, 3), leaf(3, 3))
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_writing_to_an_input_counts_as_a_version():
    def f(x, w):
        x.mul_(2)
        return x * w

    x, w = torch.randn(3), leaf(3)
    torch.compile(f, backend="permalloy")(x, w)
    assert x._version == 1


# --- inputs that are overwritten --------------------------------------------------------------


def test_the_backward_reads_inputs_as_they_were_before_the_write():
    def f(x, y, w):
        loss = (
            ((x + w) ** 2).sum()
            + (y[1:].sin() * w).sum()
            + (y.t().contiguous() @ w.unsqueeze(0).expand(3, 4).t()).sum()
        )
        x.mul_(2)
        y.zero_()
        return loss

    agrees(f, torch.randn(3, 4), torch.randn(4, 4), leaf(4))


def test_the_backward_reads_inputs_of_any_size_as_they_were():
    def f(x, w):
        y = x[1:].sin() @ w + x[1:].exp() @ w
        x.add_(1)
        return y

    agrees(f, torch.randn(5, 4), leaf(4, 3), dynamic=True)


@pytest.mark.parametrize("partition", ["own", "torch"])
def test_the_backward_reads_inputs_as_they_were_before_they_required_grad(partition):
    # In bf16 the sine's operand is recomputed from x, which gets its new contents after the forward.
    def f(x, y):
        x.add_(y, alpha=0.5)
        return x.sin() + x

    x, y = (torch.randn(4, 4, dtype=torch.bfloat16) for _ in range(2))
    with permalloy.config.patch(partition=partition):
        agrees(f, x, y.requires_grad_())
        agrees(f, torch.randn(4, 9)[:, 1::2].bfloat16(), y.requires_grad_())


# --- views ------------------------------------------------------------------------------------


def test_an_operator_reads_a_view_of_an_argument_that_starts_inside_its_memory():
    def f(x, w):
        return x @ w, x[1:] @ w.expand(2, 3, 4), (x[:, 1:] @ w[1:]).sin()

    x, w = torch.randn(4, 7)[1:, 1::2].requires_grad_(), torch.randn(5, 4)[2:].requires_grad_()
    agrees(f, x, w)


def test_an_operator_gets_a_copy_of_a_flipped_value():
    agrees(lambda x: (torch.linalg.inv(x.flip(0)), x.flip(1) @ x), leaf(4, 4))


def test_a_mask_and_a_divided_dim_meet_in_one_operation():
    def f(x):
        v = torch.cat([x, x * 0.5]).unfold(0, 2, 2)[:3]
        return v.diagonal_scatter(v.diagonal().flip(-1) * 2)

    agrees(f, leaf(4))


def test_a_sum_over_one_element():
    agrees(lambda x: x.expand(2, 4).reshape(8)[1:2:2].sum(0, keepdim=True), leaf(4))


def test_a_scatter_of_a_padded_value():
    agrees(lambda x: x.unfold(0, 2, 2)[..., 0].clone(), leaf(3, 2))


def test_values_that_differ_where_strides_promise_they_repeat():
    # The strides PyTorch promises for a scatter into an expanded tensor are the expanded tensor's.
    agrees(lambda x: x.expand(3, 2).select_scatter(x.exp(), 0, 2), leaf(2))


def test_a_window_of_an_expanded_value_is_returned():
    agrees(lambda x: (x * 1.5)[:, ::2].unsqueeze(0).expand(2, 5, 3).unfold(2, 2, 1), leaf(5, 5))


@pytest.mark.parametrize("size", [0, 3])
def test_values_without_elements(size):
    def f(x, w):
        e = x[7:]
        return e.sin(), torch.cat([e, x]).sum(0), e.sum(0) + e.prod(0), e @ w, (e @ w).relu().sum(), e.mean(1)

    agrees(f, leaf(5, size), leaf(size, 4))


def test_a_batch_that_shrinks_to_nothing():
    f = torch.compile(lambda x, w, b: torch.nn.functional.linear(x, w, b).relu().sum(0), backend="permalloy")
    w, b = leaf(5, 6), leaf(5)
    for n in (3, 4, 0, 7):
        x = torch.randn(n, 6)
        torch.testing.assert_close(f(x, w, b), torch.nn.functional.linear(x, w, b).relu().sum(0))


# --- symbolic sizes ---------------------------------------------------------------------------


def test_sizes_that_only_guards_make_equal():
    def f(x, wqkv, wo):
        b, t, d = x.shape
        q, k, v = (x @ wqkv).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        p = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return p.transpose(1, 2).reshape(b, t, d) @ wo

    agrees(f, leaf(2, 6, 16), leaf(16, 48), leaf(16, 16), dynamic=True)


def test_a_step_over_a_symbolic_range():
    agrees(lambda x: x[x.shape[0] // 3 : -1 : 2] * 2, leaf(11, 5), dynamic=True)


# --- numbers ----------------------------------------------------------------------------------


def test_the_range_of_a_16_bit_logit_is_rounded_to_its_dtype():
    x = torch.linspace(0.5, 1, 9, dtype=torch.bfloat16, requires_grad=True)
    agrees(lambda x: torch.logit(x, 1e-4), x)


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fn",
    [
        lambda w, i: torch.nn.functional.embedding(i, w).sin(),
        lambda w, i: w[i].sin(),
        lambda w, i: w.sin().index_select(0, i),
        lambda w, i: torch.zeros(9, 3).index_add(0, i, w[:2]),
    ],
)
def test_an_index_out_of_range(fn):
    compiled = torch.compile(fn, backend="permalloy")
    w = torch.randn(5, 3)
    with pytest.raises(
        IndexError, match=r"index 70 is out of range for a dimension of size \d of .* at test_corners.py"
    ):
        compiled(w, torch.tensor([1, 70]))
    torch.testing.assert_close(compiled(w, torch.tensor([1, 0])), fn(w, torch.tensor([1, 0])))


def test_a_fake_tensor_is_refused():
    from permalloy import _core, backend
    from torch._subclasses.fake_tensor import FakeTensorMode

    text = (
        'graph "g" inference {\n  input %x: f32[3] strides=[1]\n  %y: f32[3] = aten.sin.default(%x)\n  output %y\n}\n'
    )
    compiled = _core.compile_graph(text, backend.Options.of_config())
    with FakeTensorMode():
        x = torch.empty(3)
    with pytest.raises(RuntimeError, match="fake tensor"):
        compiled([x])


# --- 16-bit floats ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_maximum_that_went_through_memory_is_found_again(dtype):
    # The backward looks for the element that equals the maximum: it was rounded when it was stored, its operand was not.
    def f(x):
        y = (x.abs() + 0.5).sqrt()
        return y.amax(0), (x * x).max(), x.exp().amin([1, 2]), y.scatter_reduce(0, i, x * 1.1, "amax")

    i = torch.randint(0, 5, (5, 6, 7))
    agrees(f, torch.randn(5, 6, 7, dtype=dtype, requires_grad=True))


# --- found by the OpInfo sweep ----------------------------------------------------------------


def test_a_saved_value_whose_name_holds_a_dot():
    """A view of an input that the forward writes to is saved as it was before, as `%v8.before`."""
    channels = lambda: torch.rand(2) + 0.5  # noqa: E731
    stats = channels(), channels()

    def f(x, w, b, mean, var):
        return torch.ops.aten._native_batch_norm_legit(x, w, b, mean, var, False, -1.0, 0.5)[0]

    agrees(f, leaf(3, 2, 3, 4), leaf(2), leaf(2), *stats)
    assert [r.compiled for r in permalloy.records() if r.kind == "joint"][-1:] == [True]


def test_complex_values_are_copied_by_pytorch():
    agrees(lambda x: torch.fft.fft(x).clone().abs(), leaf(3, 8))
    agrees(lambda x: torch.fft.rfft(x), torch.randn(3, 8))


def test_a_shape_that_depends_on_data_though_no_tag_says_so():
    """Tracing `_unique` finds the shape of made-up data; the graph is PyTorch's."""
    f = lambda x: torch.ops.aten._unique(x)[0].sum()  # noqa: E731
    x = torch.tensor([3, 1, 3, 7])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", permalloy.FallbackWarning)
        assert torch.compile(f, backend="permalloy", fullgraph=True)(x) == 11
    assert "depends on data" in permalloy.records()[-1].reason


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_slopes_keep_their_last_places_where_tanh_is_near_one(name):
    """1 - t² was computed as written, which cancels."""
    f = torch.tanh if name == "tanh" else lambda x: torch.nn.functional.gelu(x, approximate="tanh")
    agrees(f, torch.linspace(-4, 4, 4001).requires_grad_())


def test_indices_of_a_bag_that_are_no_row():
    """The kernels of embedding_bag want dense indices; the copy that the trace asks for was elided."""
    index, offsets = torch.tensor([0, 9, 2, 9, 1, 9, 2, 9])[::2], torch.tensor([0, 2])
    agrees(lambda w, i, o: torch.nn.functional.embedding_bag(i, w, o), leaf(4, 3), index, offsets)


@pytest.mark.parametrize("track", [True, False])
def test_statistics_of_a_16_bit_batch_norm_with_wide_weights(track):
    """The shape function of the batch norm says bf16 where the kernel keeps mean and 1/σ in f32."""

    def f(x, w, b, mean, var):
        return torch.nn.functional.batch_norm(x, mean, var, w, b, True)

    x = torch.randn(6, 5, 3, dtype=torch.bfloat16, requires_grad=True)
    running = (torch.zeros(5), torch.ones(5)) if track else (None, None)
    agrees(f, x, leaf(5), leaf(5), *running)


def test_statistics_of_a_16_bit_batch_norm_in_eval_keep_their_dtype():
    def f(x, w, b, mean, var):
        return torch.nn.functional.batch_norm(x, mean, var, w, b, False)

    half = [torch.rand(5, dtype=torch.bfloat16) + 0.5 for _ in range(4)]
    agrees(f, torch.randn(6, 5, dtype=torch.bfloat16, requires_grad=True), *half)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode, padding", [("sum", None), ("sum", 2), ("mean", None), ("max", None)])
def test_bags_of_every_dtype(mode, padding, dtype, weighted):
    """PyTorch's shape function has bag numbers where the kernel for sums of bf16 returns none."""
    if weighted and mode != "sum":
        pytest.skip("PyTorch weighs sums alone")
    index, offsets = torch.tensor([0, 3, 2, 3, 1, 0]), torch.tensor([0, 2, 2])
    weights = torch.rand(6, dtype=dtype, requires_grad=True) if weighted else None

    def f(w, i, o, s):
        return torch.nn.functional.embedding_bag(i, w, o, mode=mode, per_sample_weights=s, padding_idx=padding)

    agrees(f, torch.randn(4, 3, dtype=dtype, requires_grad=True), index, offsets, weights)


def test_the_slope_of_a_hard_sigmoid_in_doubles_is_pytorchs():
    x = torch.linspace(-4, 4, 33, dtype=torch.float64, requires_grad=True)
    agrees(torch.nn.functional.hardsigmoid, x)
