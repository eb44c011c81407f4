"""From a Python function to the generated kernels of its graph."""

from __future__ import annotations

import json

import torch
from permalloy import _core
from permalloy.export import export
from torch.fx.experimental.proxy_tensor import make_fx


def programs(f, inputs, device="cuda-sm90", dynamic=False, deterministic=False, tile=None):
    """The programs that `f` becomes, gradients that it takes included. `dynamic`: for any size of the inputs."""
    gm = make_fx(f, tracing_mode="symbolic" if dynamic else "fake")(*inputs)
    gm.graph.eliminate_dead_code()
    exported = export(gm, "inference", name=f.__name__)
    assert not exported.constants
    return json.loads(_core.triton_sources(exported.text, device, deterministic, tile)), gm


def symbols_of(program, inputs):
    """Values of the size symbols, read off inputs whose sizes are plain symbols."""
    known = {}
    tensors = iter(inputs)
    for i in program["inputs"]:
        if "buffer" not in i:
            continue
        t = next(tensors)
        for text, n in zip(program["buffers"][i["buffer"]]["shape"], t.shape, strict=True):
            if text.isidentifier():
                known[text] = n
    return known


def launches(program):
    """Every kernel launch."""
    for step in program["steps"]:
        assert "launches" in step, step
        yield from (x for x in step["launches"] if "kernel" in x)


def error_of(got, want):
    """Largest error relative to the largest element, both in f64; infinite and NaN elements have to be the same."""
    got, want = got.double(), want.double()
    special = ~want.isfinite()
    assert torch.equal(special, ~got.isfinite()), (got[special], want[special])
    assert torch.equal(got[special].nan_to_num(7.0), want[special].nan_to_num(7.0))
    return ((got - want).abs() / (want.abs() + 1e-30 + want[~special].abs().mean() if want.numel() else 1)).nan_to_num(
        0
    )
