"""Ctrl-C while a graph compiles and while a step runs: it is raised, and what comes after is right."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
from permalloy import callbacks


@pytest.fixture(autouse=True)
def interrupts():
    """Python's own handler: a shell that runs the tests in the background has the signal ignored."""
    torch._dynamo.reset()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def step_of(fn, *args):
    """Loss and gradients."""
    loss = fn(*args)
    return [loss.detach(), *torch.autograd.grad(loss, [a for a in args if a.requires_grad])]


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as f:
        return f.read().split()


def test_while_the_compiler_asks_for_a_schema(monkeypatch):
    """The interrupt was taken for a failed answer, and the compile went on."""

    def f(x):
        return torch.kthvalue(x * 2, 2, 1).values.square().sum()

    def interrupted(name):
        asked.append(name)
        signal.raise_signal(signal.SIGINT)

    asked: list[str] = []
    x = torch.randn(4, 5, requires_grad=True)
    compiled = torch.compile(f, backend="permalloy", fullgraph=True)
    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "schema", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
    assert asked
    torch.testing.assert_close(step_of(compiled, x), step_of(f, x))
    assert children() == []


def test_while_a_step_runs():
    """The call in progress ends, a fraction of a step; the next one finds nothing changed."""

    def f(x, w):
        y = x
        for _ in range(4):
            y = torch.sin(y * w) + torch.exp(-y * y) * torch.erf(y)
        return y.square().mean()

    x, w = torch.randn(2000, 256), torch.randn(256, requires_grad=True)
    compiled = torch.compile(f, backend="permalloy", fullgraph=True)
    want = step_of(compiled, x, w)
    began = time.monotonic()
    step_of(compiled, x, w)
    took = time.monotonic() - began
    for share in (0.2, 0.5, 0.8, 1.2):
        timer = threading.Timer(share * took, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            for _ in range(1000):
                step_of(compiled, x, w)
        timer.join()
        got = step_of(compiled, x, w)
        assert all(torch.equal(g, e) for g, e in zip(got, want, strict=True))
    assert children() == []
