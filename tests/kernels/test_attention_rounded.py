"""What the Gluon kernels' errors are measured by: float64 where nothing rounds, else near it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_rounded import rounded_attention
from attention_truth import attention

HOW: list[dict[str, Any]] = [
    {},
    {"causal": "top-left"},
    {"causal": "bottom-right", "window": (3, -1)},
    {"softcap": 2.0},
]


def both(dtype: torch.dtype, lengths: tuple[int, int], how: dict[str, Any]) -> list[float]:
    """Errors of output and gradients, relative to the norm of each."""
    q, of_out = (torch.randn(2, 4, lengths[0], 16).to(dtype) for _ in range(2))
    k, v = (torch.randn(2, 2, lengths[1], 16).to(dtype) for _ in range(2))
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    out, lse = attention(exact[0], exact[1], exact[2], **how)
    seen = lse.isfinite()
    of_lse = torch.where(seen, torch.randn(lse.shape), 0.0)
    lse = torch.where(seen, lse, 0.0)
    wanted = out, *torch.autograd.grad([out, lse], exact, [of_out.double(), of_lse.double()])
    rounded = rounded_attention(q, k, v, of_out, of_lse, **how)
    return [
        float((x - want.detach()).norm() / want.detach().norm())
        for x, want in zip(rounded, wanted, strict=True)
    ]


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("lengths", [(7, 5), (20, 33)])
def test_in_a_dtype_that_rounds_little_it_is_float64s(lengths, how) -> None:
    assert max(both(torch.float32, lengths, how)) < 1e-6


@pytest.mark.parametrize("how", HOW, ids=str)
def test_with_many_keys_it_is_about_a_rounding_from_float64s(how) -> None:
    errors = both(torch.bfloat16, (60, 70), how)
    assert min(errors) > 2**-12
    assert max(errors) < 2**-7


def test_of_the_output_given_the_backward_takes_the_roundings() -> None:
    q, k, v, of_out = (torch.randn(1, 1, 9, 16).bfloat16() for _ in range(4))
    own, dq, dk, dv = rounded_attention(q, k, v, of_out)
    same = rounded_attention(q, k, v, of_out, out=own.bfloat16())
    assert all(torch.equal(x, y) for x, y in zip(same, (own, dq, dk, dv), strict=True))
    other = rounded_attention(q, k, v, of_out, out=(own * 1.5).bfloat16())
    assert torch.equal(other[3], dv)
    assert not torch.equal(other[1], dq)
    assert not torch.equal(other[2], dk)
