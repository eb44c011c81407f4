"""Sample arguments of matmul and its gradients."""

import torch

from .sample import FLOATS, sample

SHAPES = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((6, 2, 3, 4), (4, 5)),
    ((6, 2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((3, 4), (6, 2, 4, 5)),
    ((4,), (6, 2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((6, 2, 3, 4), (6, 2, 4, 5)),
    ((2, 3, 4), (1, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((1, 3, 4), (1, 4, 5)),
    ((6, 1, 3, 4), (1, 2, 4, 5)),
    ((1, 2, 3, 4), (6, 1, 4, 5)),
    ((6, 1, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (6, 1, 4, 5)),
    ((2, 3, 4), (6, 2, 4, 5)),
    ((6, 2, 3, 4), (2, 4, 5)),
    ((1, 1, 3, 4), (4, 5)),
    ((7, 1, 2, 3, 4), (6, 1, 4, 5)),
    ((3, 1), (1, 5)),
    ((2, 3, 1), (2, 1, 5)),
    ((2, 1, 4), (4, 1)),
    ((1, 4), (4, 1)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((0, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 0)),
    ((2, 0, 4), (4,)),
    ((0,), (0,)),
    ((3, 4), (0, 4, 5)),
]
MASKS = [[True, True], [True, False], [False, True], [False, False]]


def gradients(grad, left, right, mask):
    """What `aten.matmul_backward`, which has no kernel here, returns."""
    wide = torch.promote_types(grad.dtype, torch.promote_types(left.dtype, right.dtype))
    a, b = left.detach().to(wide).requires_grad_(), right.detach().to(wide).requires_grad_()
    da, db = torch.autograd.grad(torch.matmul(a, b), (a, b), grad.to(wide))
    return [da.to(left.dtype) if mask[0] else None, db.to(right.dtype) if mask[1] else None]


def samples():
    for dtype in FLOATS:
        for left, right in SHAPES:
            a, b = torch.randn(left).to(dtype), torch.randn(right).to(dtype)
            yield sample("matmul.default", a, b)
            grad = torch.randn_like(torch.matmul(a, b))
            for mask in MASKS if dtype == torch.float32 else MASKS[:1]:
                yield sample("matmul_backward.default", grad, a, b, mask, reference=gradients)
    a, b = torch.randn(2, 3, 4), torch.randn(4, 5)
    grad = torch.randn(2, 3, 5)
    for one in (torch.bfloat16, torch.float64):
        for x, y, g in ((a.to(one), b, grad), (a, b.to(one), grad), (a, b, grad.to(one))):
            yield sample("matmul_backward.default", g, x, y, [True, True], reference=gradients)
    yield sample("matmul_backward.default", grad.mT.contiguous().mT, a, b, [True, True], reference=gradients)
    yield sample("matmul_backward.default", torch.ones(()).expand(2, 3, 5), a, b, [True, True], reference=gradients)
    for dtype in FLOATS:
        yield sample("outer.default", torch.randn(3).to(dtype), torch.randn(4).to(dtype))
    yield sample("ger.default", torch.randn(0), torch.randn(4))
    for dtype in (torch.float32, torch.float64):
        left, right = torch.randn(4, 6).to(dtype), torch.randn(6, 3).to(dtype)
        for bias in (torch.randn(3), torch.randn(4, 3), torch.randn(4, 1), torch.randn(()), torch.randn(1, 3)):
            yield sample("addmm.default", bias.to(dtype), left, right)
        yield sample("addmm.default", torch.randn(3).to(dtype), left.mT.contiguous().mT, right[:, :0].new_zeros(6, 3))
    yield sample("addmm.default", torch.randn(3), torch.randn(4, 0), torch.randn(0, 3))
    yield sample("addmm.default", torch.randn(3), torch.randn(0, 2), torch.randn(2, 3))
