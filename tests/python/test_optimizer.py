"""Optimizers over many parameters: a few launches, and the numbers of what PyTorch traces."""

from __future__ import annotations

import json

import permalloy
import pytest
import torch

SHAPES = [(64,), (8, 8), (7, 5), (33,), (1,), (), (4, 3, 3, 3)]


@pytest.mark.parametrize("foreach", [True, False])
def test_adamw_is_a_few_launches(foreach, tmp_path):
    def trained(backend, dtype=torch.float32):
        torch.manual_seed(0)
        torch._dynamo.reset()
        draw = [torch.randn(SHAPES[i % len(SHAPES)]) for i in range(4 * 21)]
        parameters = [x.to(dtype).requires_grad_() for x in draw[:21]]
        optimizer = torch.optim.AdamW(parameters, lr=0.1, foreach=foreach)
        step = torch.compile(optimizer.step, backend=backend) if backend else optimizer.step
        for k in range(1, 4):
            for p, g in zip(parameters, draw[21 * k :]):
                p.grad = g.to(dtype)
            step()
        return parameters + [v for s in optimizer.state.values() for v in s.values()]

    permalloy.clear_records()
    with permalloy.config.patch(dump=str(tmp_path)):
        got = trained("permalloy")
    # Traced, the bias correction 1 - 0.999^t is computed in float32, and eager's in double precision.
    traced, exact = trained("aot_eager"), trained(None, torch.float64)
    for mine, theirs, truth in zip(got, traced, exact):
        unit = torch.finfo(torch.float32).eps * truth.abs().max()
        assert (mine - truth).abs().max() <= 2 * (theirs - truth).abs().max() + unit
    assert all(r.compiled for r in permalloy.records())
    for file in tmp_path.glob("*.pm"):
        status, text = permalloy._core.command(["explain", "--json", str(file)])
        totals = json.loads(text)["totals"]
        assert status == 0 and totals["native"] == 0 and totals["fused"] <= 5, totals
