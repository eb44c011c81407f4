"""One training step of whole models: the loss and every gradient against eager and a double-precision run.

The models are those of the benchmarks, made small.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path

import permalloy
import pytest
import torch

MODELS = Path(__file__).resolve().parents[2] / "bench" / "models.py"
SMALL = {"VOCABULARY": 96, "WIDTH": 32, "HEADS": 2, "LAYERS": 2, "BATCH": 3, "LENGTH": 12}


@pytest.fixture(scope="module")
def models():
    spec = importlib.util.spec_from_file_location("bench_models", MODELS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    for name, value in SMALL.items():
        assert hasattr(module, name)
        setattr(module, name, value)
    return module


def step(loss, model, batch) -> dict[str, torch.Tensor]:
    model.zero_grad()
    out = loss(*batch)
    out.backward()
    return {"loss": out.detach(), **{name: p.grad.clone() for name, p in model.named_parameters()}}


def wide(batch):
    return tuple(x.double() if x.is_floating_point() else x for x in batch)


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    """`‖got − exact‖ / ‖exact‖`"""
    return float((got.double() - exact).norm() / exact.norm().clamp_min(1e-12))


@pytest.mark.parametrize("name", ["nanogpt", "gpt2", "llama", "bert", "resnet", "dlrm"])
def test_loss_and_gradients(models, name):
    torch.manual_seed(0)
    work = models.build(name)
    start = copy.deepcopy(work.model.state_dict())
    want = step(work.loss, work.model, work.batch)
    work.model.load_state_dict(start)
    permalloy.clear_records()
    # Max pooling has no rule; nothing else of these six runs natively but what PyTorch's libraries do best.
    routes = {"aten.max_pool2d_with_indices*": "native"}
    with permalloy.config.patch(strict=True, routes=routes):
        got = step(torch.compile(work.loss, backend="permalloy"), work.model, work.batch)
    assert all(r.compiled for r in permalloy.records())
    work.model.load_state_dict(start)
    work.model.double()
    exact = step(work.loss, work.model, wide(work.batch))
    assert got.keys() == want.keys() == exact.keys()
    largest = max(float(reference.norm()) for reference in exact.values())
    for key, reference in exact.items():
        if reference.norm() <= 1e-12 * largest:
            # Zero but for rounding, as for a bias of keys, which softmax does not see: noise in eager too.
            assert got[key].norm() <= 2**-23 * largest, key
            continue
        mine, eagers = error(got[key], reference), error(want[key], reference)
        assert mine <= 2 * eagers + 2**-23, f"{key}: {mine:.1e}, eager {eagers:.1e}"
