"""Activation checkpointing: both halves are compiled, and what is computed twice draws the same random numbers."""

from __future__ import annotations

import json
import subprocess
import sys

import permalloy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def fresh():
    permalloy.clear_records()


class Block(nn.Module):
    """Attention by `scaled_dot_product_attention`, which PyTorch counts among the random operators, and two dropouts."""

    def __init__(self, width=16):
        super().__init__()
        self.qkv, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        x = x + F.dropout(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2), 0.5)
        return x + F.dropout(self.down(F.gelu(self.up(x))), 0.25)


def run(step, model, x):
    """Loss, gradients, and the next random numbers."""
    model.zero_grad()
    torch.manual_seed(3)
    loss = step(x)
    loss.backward()
    return [loss.detach(), *[p.grad.clone() for p in model.parameters()], torch.rand(4)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_dropout_and_attention_in_checkpoints(dynamic):
    model = nn.ModuleList([Block(), Block()])

    def step(x):
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)
        return F.dropout(x, 0.5).square().mean()

    compiled = torch.compile(step, backend="permalloy", dynamic=dynamic)
    with permalloy.config.patch(strict=True):
        for size in (2, 5):
            x = torch.randn(size, 6, 16)
            got, want = run(compiled, model, x), run(step, model, x)
            model.double()
            # The masks do not depend on the dtype.
            exact = run(step, model, x.double())
            model.float()
            for mine, eager, reference in zip(got, want, exact):
                scale = reference.abs().max()
                theirs = (eager - reference).abs().max() / scale
                assert (mine - reference).abs().max() / scale <= 2 * theirs + 2**-23
            assert torch.equal(got[-1], want[-1]), "the generator stands where eager leaves it"
    found = {r.kind: r for r in permalloy.records()}
    assert found["forward"].compiled and found["backward"].compiled
    assert "cut by PyTorch" in str(found["joint"]) and "activation checkpointing" in found["joint"].reason
    names = [d["operator"] for d in found["backward"].decisions]
    assert "permalloy.set_rng_state.default" in names


def test_an_operator_without_results_is_compiled():
    def step(x):
        torch._assert_async((x > 0).all(), "not positive")
        return (x * x).sum()

    x = torch.rand(4, requires_grad=True) + 1
    torch.testing.assert_close(torch.compile(step, backend="permalloy")(x), step(x))
    assert all(r.compiled for r in permalloy.records())
    with pytest.raises(RuntimeError, match="not positive"):
        torch.compile(step, backend="permalloy")(-x.detach())


def test_what_draws_random_numbers_is_declared_as_such():
    """Operators that are not would be merged with their like, moved, or computed twice."""
    listed = subprocess.run(
        [sys.executable, "-m", "permalloy", "ops", "--json"], capture_output=True, check=True
    ).stdout
    effects = {op["name"]: op["effect"] for op in json.loads(listed)}
    for name in ("native_dropout.default", "randint_like.Tensor", "rrelu_with_noise_functional.default"):
        packet, overload = name.split(".")
        assert torch.Tag.nondeterministic_seeded in getattr(getattr(torch.ops.aten, packet), overload).tags
        assert effects[f"aten.{name}"] == "random"
