"""Sample arguments of the losses and their gradients."""

import itertools

import torch

from .sample import FLOATS, sample

REDUCTIONS = (0, 1, 2)


def nll():
    for dtype in FLOATS:
        for shape in ((4, 5), (5,), (1, 3), (0, 3)):
            x = torch.randn(shape).log_softmax(-1).to(dtype)
            classes, rows = shape[-1], shape[:-1]
            for weighted, reduction, ignored in itertools.product((False, True), REDUCTIONS, (-100, 1)):
                target = torch.randint(0, classes, rows)
                if len(rows) == 1 and rows[0] > 2:
                    target[0], target[1] = ignored, 1
                w = torch.rand(classes).to(dtype) if weighted else None
                yield from pair("nll_loss", x, target, w, reduction, ignored)
        x = torch.randn(2, 5, 3, 2).log_softmax(1).to(dtype)
        for weighted, reduction, ignored in itertools.product((False, True), REDUCTIONS, (-100, 1)):
            target = torch.randint(0, 5, (2, 3, 2))
            target[0, 0, 0], target[1, 1, 1] = ignored, 1
            w = torch.rand(5).to(dtype) if weighted else None
            yield from pair("nll_loss2d", x, target, w, reduction, ignored)
    x, target = torch.randn(3, 4).log_softmax(1), torch.full((3,), -100)
    for reduction in REDUCTIONS:
        yield from pair("nll_loss", x, target, None, reduction, -100)
    yield from pair("nll_loss", x.bfloat16(), torch.tensor([0, 1, 3]), None, 1, -100)


def pair(name, x, target, w, reduction, ignored):
    """The forward operator and its gradient."""
    yield sample(f"{name}_forward.default", x, target, w, reduction, ignored)
    out, total = getattr(torch.ops.aten, f"{name}_forward").default(x, target, w, reduction, ignored)
    g = torch.randn(out.shape).to(x.dtype)
    yield sample(f"{name}_backward.default", g, x, target, w, reduction, ignored, total)


def regression():
    for dtype in FLOATS:
        for (shape, other), reduction in itertools.product(
            (((3, 4), (3, 4)), ((), ()), ((2, 0), (2, 0)), ((3, 4), (4,))), REDUCTIONS
        ):
            x, t = torch.randn(shape).to(dtype), torch.randn(other).to(dtype)
            g = torch.randn(shape if reduction == 0 else ()).to(dtype)
            for name in ("mse_loss", "l1_loss"):
                yield sample(f"{name}.default", x, t, reduction)
            for beta in (1.0, 0.3, 0.0):
                yield sample("smooth_l1_loss.default", x, t, reduction, beta)
            for delta in (1.0, 0.3):
                yield sample("huber_loss.default", x, t, reduction, delta)
            if shape != other:
                continue
            yield sample("mse_loss_backward.default", g, x, t, reduction)
            for beta in (1.0, 0.3, 0.0):
                yield sample("smooth_l1_loss_backward.default", g, x, t, reduction, beta)
            for delta in (1.0, 0.3):
                yield sample("huber_loss_backward.default", g, x, t, reduction, delta)
            sign = t.sign()
            yield sample("soft_margin_loss.default", x, sign, reduction)
            yield sample("soft_margin_loss_backward.default", g, x, sign, reduction)
        # On the kinks: differences of exactly 0, beta and delta.
        x, t = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5], dtype=dtype), torch.zeros(5, dtype=dtype)
        for name in ("smooth_l1_loss_backward", "huber_loss_backward"):
            yield sample(f"{name}.default", torch.ones(5, dtype=dtype), x, t, 0, 1.0)
        yield sample("smooth_l1_loss_backward.default", torch.ones(5, dtype=dtype), x, t, 0, 0.0)


def entropy():
    for dtype in FLOATS:
        for shape, reduction in itertools.product(((3, 4), (), (0,)), REDUCTIONS):
            x, t = torch.rand(shape).to(dtype), torch.rand(shape).to(dtype)
            w = torch.rand(shape).to(dtype)
            g = torch.randn(shape if reduction == 0 else ()).to(dtype)
            for weight in (None, w):
                yield sample("binary_cross_entropy.default", x, t, weight, reduction)
                yield sample("binary_cross_entropy_backward.default", g, x, t, weight, reduction)
                for pos_weight in (None, w):
                    logits = (x - 0.5) * (4 if dtype == torch.bfloat16 else 20)
                    yield sample("binary_cross_entropy_with_logits.default", logits, t, weight, pos_weight, reduction)
            yield sample("kl_div.default", x.log(), t, reduction)
            yield sample("kl_div.default", x.log(), t.log(), reduction, log_target=True)
        edge = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=dtype)
        t = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=dtype)
        yield sample("binary_cross_entropy.default", edge, t, None, 0)
        yield sample("kl_div.default", torch.zeros(4, dtype=dtype), t, 0)
        x, t, p = torch.randn(4, 3).to(dtype), torch.rand(4, 3).to(dtype), torch.rand(3).to(dtype)
        for reduction in REDUCTIONS:
            yield sample("binary_cross_entropy_with_logits.default", x, t, None, p, reduction)
            yield sample("binary_cross_entropy.default", x.sigmoid(), t, p, reduction)


def samples():
    torch.manual_seed(6)
    for make in (nll, regression, entropy):
        yield from make()
