"""Attention written by hand: found or left alone, loss and every gradient against double precision."""

from __future__ import annotations

import contextlib
import math

import permalloy
import pytest
import torch
import torch.nn.functional as F

INF = float("inf")


@pytest.fixture(autouse=True)
def at_any_size():
    """Tests are small: find attention where the kernel is slower, too."""
    with permalloy.config.patch(rewrites={"attention": "always"}):
        yield


def rewrites() -> list[str]:
    """What became of each pattern, as ``route: detail``."""
    found = [d for r in permalloy.records() for d in r.decisions if d["operator"] == "attention"]
    return [f"{d['route']}: {d['detail']}" for d in found]


def relative(x: torch.Tensor, ref: torch.Tensor) -> float:
    return ((x.double() - ref).norm() / ref.norm().clamp_min(1e-300)).item()


def check(fn, inputs, fires: bool = True, why: str = "", dynamic: bool = False, others=()) -> None:
    """``fn(*inputs, *others)``: gradients for ``inputs``, none for ``others``."""

    def run(f, dtype=None):
        xs = [x.detach().to(dtype or x.dtype).requires_grad_() for x in inputs]
        rest = [x.to(dtype) if dtype and x.is_floating_point() else x for x in others]
        out = f(*xs, *rest)
        torch.manual_seed(5)
        weight = torch.randn(out.shape, dtype=torch.float64).to(out.dtype)
        return [out.detach(), *torch.autograd.grad(out, xs, weight)]

    permalloy.clear_records()
    want, eager = run(fn, torch.float64), run(fn)
    with permalloy.config.patch(strict=True, check=True):
        got = run(torch.compile(fn, backend="permalloy", dynamic=dynamic))
    said = rewrites()
    # Without a wider reference eager's own error is unknown: it is the rounding of a few sums.
    floor = torch.finfo(inputs[0].dtype).eps * (8 if inputs[0].dtype == torch.float64 else 1)
    assert bool(said) and said[0].startswith("rewrite:" if fires else "as-written"), said
    assert why in said[0], said
    assert got[0].stride() == eager[0].stride()
    for g, e, w in zip(got, eager, want, strict=True):
        assert g.shape == w.shape and g.dtype == e.dtype
        assert torch.equal(g.isnan(), e.isnan())
        if not w.isnan().any():
            assert relative(g, w) <= 2 * relative(e, w) + floor


def heads(b=2, h=3, sq=7, sk=7, d=8, dtype=torch.float32):
    return [torch.randn(b, h, s, d, dtype=dtype) for s in (sq, sk, sk)]


def plain(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def causal(q, k, v):
    s = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril().logical_not()
    return s.masked_fill(mask, -INF).softmax(-1) @ v


@pytest.mark.parametrize("size", [(1, 1, 1, 1, 1), (2, 3, 7, 7, 8), (2, 2, 33, 70, 16), (1, 4, 70, 33, 5)])
@pytest.mark.parametrize("fn", [plain, causal])
def test_odd_sizes(fn, size):
    check(fn, heads(*size))


@pytest.mark.parametrize("fn", [plain, causal])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes(fn, dtype):
    check(fn, heads(sq=20, sk=20, d=16, dtype=dtype))


def test_softmax_in_f32_between_casts():
    def fn(q, k, v):
        s = q @ k.transpose(-1, -2) * 0.25
        mask = torch.arange(s.shape[-2])[:, None] < torch.arange(s.shape[-1])
        return torch.softmax(s.masked_fill(mask, -INF), -1, dtype=torch.float32).to(q.dtype) @ v

    check(fn, heads(dtype=torch.bfloat16), why="causal")


def test_strided_operands():
    def fn(qkv):
        b, t, c = qkv.shape
        q, k, v = (x.view(b, t, 2, c // 6).transpose(1, 2) for x in qkv.split(c // 3, dim=2))
        return causal(q, k, v).transpose(1, 2).reshape(b, t, c // 3)

    check(fn, [torch.randn(2, 9, 24)], why="causal")


def test_rows_are_copied_when_the_last_dim_is_strided():
    def fn(q, k, v):
        return plain(q.transpose(-1, -2), k.transpose(-1, -2), v.transpose(-1, -2))

    check(fn, [torch.randn(2, 2, 8, 5) for _ in range(3)])


def test_sdpa_of_a_clone_of_a_transpose():
    """The clone is dropped, and the kernel must still see rows."""

    def fn(x):
        q = x.transpose(-1, -2).contiguous()
        return F.scaled_dot_product_attention(q, q * 1.5, q)

    x = torch.randn(2, 4, 32, 16, requires_grad=True)
    compiled = torch.compile(fn, backend="permalloy")
    for a, b in zip(fn(x), compiled(x), strict=True):
        torch.testing.assert_close(a, b)
    (a,) = torch.autograd.grad(fn(x).sin().sum(), x)
    (b,) = torch.autograd.grad(compiled(x).sin().sum(), x)
    torch.testing.assert_close(a, b)


def test_einsum():
    def fn(q, k, v):
        p = torch.einsum("bqhd,bkhd->bhqk", q, k).mul(0.3).softmax(-1)
        return torch.einsum("bhqk,bkhd->bqhd", p, v)

    check(fn, [torch.randn(2, s, 3, 8) for s in (6, 9, 9)])


def test_three_dims():
    def fn(q, k, v):
        return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 3, -1), v)

    check(fn, [torch.randn(5, s, 8) for s in (6, 9, 9)])


def test_grouped_queries():
    def fn(q, k, v):
        return causal(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))

    check(fn, [torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)], why="causal")


def test_lower_right_causal_is_an_additive_mask():
    def fn(q, k, v):
        s = q @ k.transpose(-2, -1)
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
        return torch.where(seen, s, -INF).softmax(-1) @ v

    check(fn, heads(sq=4, sk=9), why="additive")


def test_window_of_keys():
    """Two masks; together they might hide a whole row for all the rewrite knows."""

    def fn(q, k, v):
        i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
        s = (q @ k.transpose(-2, -1)).masked_fill(j > i, -INF).masked_fill(j < i - 2, -INF)
        return s.softmax(-1) @ v

    check(fn, heads(), fires=False, why="several masks")


@pytest.mark.parametrize("shape", [(7, 7), (2, 1, 7, 7), (1, 3, 7, 7), (2, 1, 1, 7)])
def test_finite_additive_mask(shape):
    def fn(q, k, v, keep):
        return (q @ k.transpose(-2, -1) * 0.3 + (1.0 - keep.to(q.dtype)) * torch.finfo(q.dtype).min).softmax(-1) @ v

    check(fn, heads(), others=[torch.rand(shape) < 0.7], why="additive")


def test_additive_mask_with_rows_hidden():
    """The lowest number added everywhere leaves eager's uniform probabilities."""

    def fn(q, k, v, keep):
        return (q @ k.transpose(-2, -1) + torch.where(keep, 0.0, torch.finfo(q.dtype).min)).softmax(-1) @ v

    keep = torch.rand(2, 1, 7, 7) < 0.7
    keep[0, 0, 3] = False
    q, k, v = heads()
    compiled = torch.compile(fn, backend="permalloy")
    torch.testing.assert_close(compiled(q, k, v, keep), fn(q, k, v, keep))
    assert rewrites()[-1].startswith("rewrite:")


# --- where it must not fire


def test_mask_that_may_hide_a_row():
    def fn(q, k, v, hide):
        return (q @ k.transpose(-2, -1)).masked_fill(hide, -INF).softmax(-1) @ v

    hide = torch.rand(2, 1, 7, 7) < 0.3
    hide[1, 0, 2] = True
    check(fn, heads(), others=[hide], fires=False, why="may hide every key")


def test_added_mask_that_may_hide_a_row():
    def fn(q, k, v, mask):
        return (q @ k.transpose(-2, -1) + mask).softmax(-1) @ v

    mask = torch.zeros(7, 7)
    mask[2] = -INF
    check(fn, heads(), others=[mask], fires=False, why="may be -inf throughout a row")


def test_strictly_causal_hides_the_first_row():
    def fn(q, k, v):
        s = q @ k.transpose(-2, -1)
        hide = torch.ones(s.shape[-2:], dtype=torch.bool).triu()
        return s.masked_fill(hide, -INF).softmax(-1) @ v

    check(fn, heads(), fires=False, why="may hide every key")


def test_fill_that_scores_may_reach():
    def fn(q, k, v):
        s = q @ k.transpose(-2, -1)
        return s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -1e4).softmax(-1) @ v

    check(fn, heads(), fires=False, why="may come near")


def test_mask_that_wants_a_gradient():
    def fn(q, k, v, bias):
        return (q @ k.transpose(-2, -1) + bias.tanh()).softmax(-1) @ v

    check(fn, [*heads(), torch.randn(3, 7, 7)], fires=False)


def test_dropout_between_softmax_and_product():
    def fn(q, k, v):
        return F.dropout(torch.softmax(q @ k.transpose(-2, -1), -1), 0.5) @ v

    compiled = torch.compile(fn, backend="permalloy")
    q, k, v = (x.requires_grad_() for x in heads())
    torch.manual_seed(1)
    want = fn(q, k, v)
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(q, k, v), want)
    assert not any(r.startswith("rewrite:") for r in rewrites())


def test_returned_probabilities():
    def fn(q, k, v):
        p = torch.softmax(q @ k.transpose(-2, -1), -1)
        return p @ v, p

    check(lambda q, k, v: fn(q, k, v)[0] + fn(q, k, v)[1].sum(-1, keepdim=True), heads(), fires=False)


def test_scores_used_elsewhere():
    def fn(q, k, v):
        s = q @ k.transpose(-2, -1)
        return torch.softmax(s, -1) @ v + s.sin().sum(-1, keepdim=True)

    check(fn, heads(), fires=False, why="used elsewhere")


def test_values_of_another_width():
    check(plain, [torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 4)], fires=False, why="width")


def test_switched_off():
    permalloy.clear_records()
    q, k, v = (x.requires_grad_() for x in heads())
    with permalloy.config.patch(rewrites={"attention": "off"}):
        torch.compile(causal, backend="permalloy")(q, k, v).sum().backward()
    assert rewrites() == []


def test_sizes_decide():
    for keys, fires in [(32, False), (64, True)]:
        permalloy.clear_records()
        q, k, v = (x.requires_grad_() for x in heads(sq=keys, sk=keys, d=16))
        with permalloy.config.patch(rewrites={}):
            torch.compile(causal, backend="permalloy", dynamic=False)(q, k, v).sum().backward()
        assert rewrites()[0].startswith("rewrite:") is fires, rewrites()


def test_unknown_rewrite_is_an_error():
    with permalloy.config.patch(rewrites={}):
        permalloy.config.rewrites["atention"] = "off"
        with pytest.raises(ValueError, match="did you mean attention"):
            torch.compile(causal, backend="permalloy")(*heads())


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_some_operands_without_gradient(frozen):
    tensors = heads()
    for i, x in enumerate(tensors):
        x.requires_grad_(i not in frozen)
    wanted = [x for x in tensors if x.requires_grad]
    want = torch.autograd.grad(causal(*tensors).sin().sum(), wanted)
    got = torch.autograd.grad(torch.compile(causal, backend="permalloy")(*tensors).sin().sum(), wanted)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_dynamic_sizes():
    """The width is a weight's, as in a model; batch and length are symbols."""

    def fn(x, weight):
        q, k, v = (x @ weight).view(x.shape[0], x.shape[1], 3, 2, 8).permute(2, 0, 3, 1, 4)
        return causal(q, k, v)

    permalloy.clear_records()
    weight = torch.randn(16, 48) / 4
    compiled = torch.compile(fn, backend="permalloy", dynamic=True)
    for b, t in [(2, 7), (3, 12), (4, 33)]:
        x, w = torch.randn(b, t, 16, requires_grad=True), weight.clone().requires_grad_()
        torch._dynamo.mark_static(w)
        torch._dynamo.mark_static(x, 2)
        want = torch.autograd.grad(fn(x, w).sin().sum(), (x, w))
        got = torch.autograd.grad(compiled(x, w).sin().sum(), (x, w))
        for a, g in zip(want, got, strict=True):
            torch.testing.assert_close(g, a)
    graphs = [r for r in permalloy.records() if any(d["operator"] == "attention" for d in r.decisions)]
    assert len(graphs) == 1
    assert "causal" in rewrites()[-1] and "s" in rewrites()[-1].split("= [")[1], rewrites()


def test_symbolic_scale():
    check(causal, heads(), fires=False, why="prim.mul of no constant", dynamic=True)


# --- masks of SDPA


def sdpa_rewrites() -> list[str]:
    return [d["detail"] for r in permalloy.records() for d in r.decisions if d["route"] == "rewrite:sdpa_mask"]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["all", "causal", "shifted", "strict", "data"])
def test_sdpa_masks(kind, dynamic):
    def fn(q, k, v, data):
        i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
        masks = {"all": (i >= 0) & (j >= 0), "causal": j <= i, "shifted": j <= i + 1, "strict": j < i, "data": data}
        return F.scaled_dot_product_attention(q, k, v, attn_mask=masks[kind])

    permalloy.clear_records()
    data = torch.rand(9, 9) < 0.6
    q, k, v = (x.requires_grad_() for x in heads(sq=9, sk=9))
    want = torch.autograd.grad(fn(q, k, v, data).sin().sum(), (q, k, v))
    compiled = torch.compile(fn, backend="permalloy", dynamic=dynamic)
    got = torch.autograd.grad(compiled(q, k, v, data).sin().sum(), (q, k, v))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    details = sdpa_rewrites()
    expected = {"all": "hides nothing", "causal": "is causal"}.get(kind)
    with contextlib.suppress(IndexError):
        assert (expected or "none") in details[0], details
    assert bool(details) == (expected is not None), details
