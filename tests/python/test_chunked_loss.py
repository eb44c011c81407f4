"""Cross-entropy over a large vocabulary in pieces: numbers, when it is done, and what memory it takes."""

from __future__ import annotations

import os
import subprocess
import sys

import permalloy
import pytest
import torch
import torch.nn.functional as F

ROWS, INNER, CLASSES = 400, 48, 5000


def pieces() -> list[str]:
    """What became of the logits, as ``route: detail``."""
    found = [d for r in permalloy.records() for d in r.decisions if "logits" in d["detail"]]
    return [f"{d['route']}: {d['detail']}" for d in found]


def arguments() -> dict[str, torch.Tensor]:
    target = torch.randint(CLASSES, (ROWS,))
    target[3] = 7
    return {
        "h": torch.randn(4, ROWS // 4, INNER),
        "w": torch.randn(CLASSES, INNER) / 7,
        "b": torch.randn(CLASSES),
        "y": target,
    }


def outcome(fn, args, dtype, wanted, amp=False):
    args = {n: a.detach().to(dtype) if a.is_floating_point() else a for n, a in args.items()}
    for n in wanted:
        args[n].requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=amp and dtype != torch.float64):
        out = fn(**args)
    if not wanted:
        return [out]
    weight = torch.linspace(0.5, 2, out.numel(), dtype=out.dtype).reshape(out.shape)
    return [out.detach(), *torch.autograd.grad(out, [args[n] for n in wanted], weight)]


def check(fn, wanted="hw", amp=False, dynamic=False, megabytes=2, args=None) -> list[str]:
    args = args or arguments()
    permalloy.clear_records()
    exact, eager = (outcome(fn, args, dtype, wanted, amp) for dtype in (torch.float64, torch.float32))
    with permalloy.config.patch(chunked_loss=megabytes, strict=True, check=True):
        got = outcome(torch.compile(fn, backend="permalloy", dynamic=dynamic), args, torch.float32, wanted, amp)
    for g, e, x in zip(got, eager, exact, strict=True):
        assert (g.shape, g.dtype, g.stride()) == (e.shape, e.dtype, e.stride())
        size, eps = x.abs().max(), torch.finfo(torch.bfloat16 if amp else torch.float32).eps
        ours, theirs = ((t.double() - x).abs().max() for t in (g, e))
        assert ours <= 2 * theirs + eps * size, (ours / size, theirs / size)
    return pieces()


def logits(h, w, b=None):
    return F.linear(h, w, b).view(-1, CLASSES)


def test_pieces_of_rows_forward_and_of_columns_backward():
    said = check(lambda h, w, b, y: F.cross_entropy(logits(h, w), y))
    assert said == [
        "rewrite:chunked_loss: the logits [400, 5000] are made in 5 pieces of 80 rows",
        "rewrite:chunked_loss: the logits [400, 5000] are made in 4 pieces of 1264 columns",
    ]


LOSSES = {
    "sum": lambda h, w, b, y: F.cross_entropy(logits(h, w, b), y, reduction="sum"),
    "none": lambda h, w, b, y: F.cross_entropy(logits(h, w, b), y, reduction="none"),
    "ignored": lambda h, w, b, y: F.cross_entropy(logits(h, w, b), y, ignore_index=7),
    "smoothed": lambda h, w, b, y: F.cross_entropy(logits(h, w, b), y, ignore_index=7, label_smoothing=0.1),
    "weighted": lambda h, w, b, y: F.cross_entropy(logits(h, w, b), y, weight=b.detach().abs(), label_smoothing=0.1),
    "other way round": lambda h, w, b, y: F.cross_entropy(h.reshape(-1, INNER) @ (w.t() * 1.5).contiguous() + b, y),
    "tied": lambda h, w, b, y: F.cross_entropy(F.linear(F.embedding(y, w) + h.view(-1, INNER), w, b), y),
    "squared": lambda h, w, b, y: F.cross_entropy(logits(h, w, b), y) ** 2,
    "mean beside it": lambda h, w, b, y: F.cross_entropy(x := logits(h, w, b), y) + x.mean(),
}


def by_hand(h, w, b, y):
    x = 30 * torch.tanh(logits(h, w, b) / 30)
    total = torch.logsumexp(x, -1)
    return (total - x.gather(1, y[:, None])[:, 0]).mean() + 1e-3 * (total**2).mean()


LOSSES["by hand"] = by_hand


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    said = check(LOSSES[name], "hwb")
    assert len(said) == 2 and all(s.startswith("rewrite:chunked_loss") for s in said), said


@pytest.mark.parametrize("wanted", ["h", "w", "b", ""])
def test_gradients_that_are_wanted(wanted):
    said = check(LOSSES["ignored"], wanted)
    assert len(said) == (2 if wanted else 1) and all(s.startswith("rewrite:chunked_loss") for s in said), said


def test_autocast():
    def loss(h, w, b, y):
        y = F.pad(y.view(4, -1), (0, 1), value=-100)[:, 1:].reshape(-1)
        x = logits(h, w)
        return F.cross_entropy(x if x.dtype == torch.float64 else x.float(), y)

    said = check(loss, amp=True)
    assert len(said) == 2 and all(s.startswith("rewrite:chunked_loss") for s in said), said


def test_symbolic_rows_are_cut_into_as_many_pieces():
    args = arguments()
    fn = torch.compile(lambda h, w, y: F.cross_entropy(logits(h, w), y), backend="permalloy", dynamic=True)
    permalloy.clear_records()
    with permalloy.config.patch(chunked_loss=2, strict=True):
        for rows in (100, 61, 4, 1000):
            h = torch.randn(2, rows, INNER)
            some = {"h": h, "w": args["w"], "y": torch.randint(CLASSES, (2 * rows,))}
            got = outcome(fn, some, torch.float32, "hw")
            want = outcome(lambda h, w, y: F.cross_entropy(logits(h, w), y), some, torch.float64, "hw")
            for g, x in zip(got, want):
                torch.testing.assert_close(g, x.float(), rtol=1e-5, atol=1e-6)
    said = pieces()
    assert len(said) == 2 and "pieces of floordiv(" in said[0], said


@pytest.mark.parametrize(
    "loss, said",
    [
        (lambda h, w, b, y: (lambda x: (F.cross_entropy(x, y), x))(logits(h, w)), "is returned"),
        (lambda h, w, b, y: F.cross_entropy(x := logits(h, w), y) + x.cumsum(0).mean(), "reads it whole"),
    ],
)
def test_logits_that_are_used_elsewhere_stay(loss, said):
    args = arguments()
    permalloy.clear_records()
    with permalloy.config.patch(chunked_loss=2):
        torch.compile(lambda: loss(**args), backend="permalloy")()
    (found,) = pieces()
    assert found.startswith("as-written: logits in one piece") and said in found


def test_what_is_no_loss_or_small_or_switched_off_stays():
    def hidden(h, w, b, y):
        return F.gelu(logits(h, w, b)).sum() + (logits(h, w) @ w).mean()

    assert check(hidden) == []
    loss = LOSSES["ignored"]
    assert check(loss, megabytes=8) == []
    assert check(loss, megabytes=0) == []
    with permalloy.config.patch(rewrites={"chunked_loss": "off"}):
        assert check(loss) == []


PEAK = """
import sys, torch, torch.nn.functional as F, permalloy
h, y = torch.randn(1024, 64, requires_grad=True), torch.randint(65536, (1024,))
w = torch.empty(65536, 64).normal_().requires_grad_()
f = lambda h, w, y: F.cross_entropy(h @ w.t(), y)
if sys.argv[1] == "compiled":
    f = torch.compile(f, backend="permalloy", dynamic=False)
    f(h[:8], w, y[:8]).backward()  # the first compile loads much of PyTorch
    h.grad = w.grad = None
def kilobytes(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])
open("/proc/self/clear_refs", "w").write("5")  # the peak so far is forgotten
before = kilobytes("VmRSS")
f(h, w, y).backward()
print(kilobytes("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_a_step_takes_a_quarter_of_the_memory():
    def growth(how: str) -> int:
        env = {**os.environ, "PERMALLOY_CHUNKED_LOSS": "8"}
        done = subprocess.run([sys.executable, "-c", PEAK, how], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    eager, compiled = growth("eager"), growth("compiled")
    assert eager > 512 << 10, "two times the logits at least"
    assert compiled <= eager / 4, (compiled, eager)
