"""Graphs that hold aten.matmul_backward. Capturing changes a process for good, so each test runs in one of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def python(code: str) -> str:
    head = """
        import torch, permalloy
        torch.manual_seed(0)
        leaf = lambda *s: torch.randn(s, requires_grad=True)
        def grads(f, *leaves):
            return torch.autograd.grad(f(*leaves).sin().sum(), leaves)
        close = torch.testing.assert_close
    """
    program = textwrap.dedent(head) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


PAIRS = [
    ((3,), (3,)),
    ((4, 3), (3,)),
    ((3,), (3, 6)),
    ((2, 4, 3), (3, 6)),
    ((4, 3), (2, 3, 6)),
    ((7, 1, 4, 3), (2, 3, 6)),
]


def test_gradients_are_the_same_eager_and_compiled():
    python(f"""
        pairs = {PAIRS}
        want = [grads(torch.ops.aten.matmul.default.decompose, *map(lambda s: torch.arange(1., 1 + torch.Size(s).numel()).view(s).div(9).requires_grad_(), p)) for p in pairs]
        permalloy.capture_matmul()
        permalloy.capture_matmul()
        compiled = torch.compile(lambda a, b: a @ b, backend="permalloy", dynamic=False)
        for p, w in zip(pairs, want):
            for f in (torch.matmul, compiled):
                a, b = (torch.arange(1., 1 + torch.Size(s).numel()).view(s).div(9).requires_grad_() for s in p)
                close(grads(f, a, b), w)
        routes = {{d["operator"] for r in permalloy.records() for d in r.decisions}}
        assert "aten.matmul_backward.default" in routes, routes
        assert all(r.compiled for r in permalloy.records()), permalloy.explain()
    """)


def test_second_derivatives_and_functional_transforms():
    python("""
        permalloy.capture_matmul()
        a, b = leaf(3, 4).double().detach().requires_grad_(), leaf(2, 4, 5).double().detach().requires_grad_()
        assert torch.autograd.gradcheck(torch.matmul, (a, b), check_forward_ad=True)
        assert torch.autograd.gradgradcheck(torch.matmul, (a, b))
        f = lambda a, b: (a @ b).sin().sum()
        close(torch.func.grad(f)(a.detach(), b.detach()), torch.autograd.grad(f(a, b), a)[0])
        close(torch.func.vmap(torch.matmul, (None, 0))(a.detach(), b.detach()), a.detach() @ b.detach())
    """)


def test_a_late_capture_is_seen_by_symbolic_tracing():
    python("""
        f = lambda a, b: a @ b
        for late in (False, True):
            if late:
                permalloy.capture_matmul()
            torch._dynamo.reset()
            permalloy.clear_records()
            a, b = leaf(2, 4, 3), leaf(3, 5)
            close(grads(torch.compile(f, backend="permalloy", dynamic=True), a, b), grads(f, a, b))
            routes = {d["operator"] for r in permalloy.records() for d in r.decisions}
            assert ("aten.matmul_backward.default" in routes) == late, routes
    """)


def test_the_operator_can_be_called_by_name():
    python("""
        g, a, b = torch.randn(2, 4, 6), torch.randn(2, 4, 3), torch.randn(3, 6)
        f = lambda *x: torch.ops.aten.matmul_backward(*x, [True, False])
        (eager, none), (mine, nothing) = f(g, a, b), torch.compile(f, backend="permalloy", fullgraph=True)(g, a, b)
        close(mine, g @ b.T)
        close(eager, mine)
        assert none is None and nothing is None
    """)
