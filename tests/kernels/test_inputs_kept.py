"""Forward and backward leave what they were given as it was, and may run again on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from trainscope_kernels import bias_gelu, flash_attention, gelu, softmax

IMPLS = ["reference", "triton"]
Call = Callable[..., torch.Tensor]
CALLS: dict[str, tuple[Call, list[tuple[int, ...]]]] = {
    "gelu": (lambda x, impl: gelu(x, "tanh", impl=impl), [(5, 33)]),
    "bias_gelu": (lambda x, b, impl: bias_gelu(x, b, impl=impl), [(5, 33), (33,)]),
    "softmax": (lambda x, impl: softmax(x, 0, impl=impl), [(5, 33)]),
    "softmax of long rows": (lambda x, impl: softmax(x, impl=impl), [(2, 40_000)]),
    "attention": (
        lambda q, k, v, impl: flash_attention(
            q, k, v, causal="bottom-right", softcap=3.0, impl=impl, deterministic=True
        ),
        [(1, 2, 9, 8), (1, 1, 12, 8), (1, 1, 12, 8)],
    ),
    "attention with a mask": (
        lambda q, k, v, impl: flash_attention(q, k, v, mask=q[0, 0, :, :1] > 0, impl=impl),
        [(1, 2, 9, 8), (1, 1, 9, 8), (1, 1, 9, 8)],
    ),
}
CASES = [(name, impl) for name in CALLS for impl in IMPLS]
CASES += [
    pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in ("gelu", "bias_gelu")
]  # fmt: skip


@pytest.mark.parametrize(("name", "impl"), CASES)
def test_nothing_given_or_saved_is_written(name: str, impl: str, device: torch.device) -> None:
    call, shapes = CALLS[name]
    leaves = [torch.randn(each, device=device).requires_grad_() for each in shapes]
    before = [each.detach().clone() for each in leaves]
    out = call(*leaves, impl)
    grad = torch.randn_like(out)
    given, made = grad.clone(), out.detach().clone()
    first = torch.autograd.grad(out, leaves, grad, retain_graph=True)
    second = torch.autograd.grad(out, leaves, grad)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(call(*leaves, impl), made)
    for now, then in ((grad, given), (out, made), *zip(leaves, before, strict=True)):
        assert torch.equal(now, then)
