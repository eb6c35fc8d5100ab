"""Attention in float64 that rounds where a kernel with tensor cores must: what no kernel undercuts.

A product of tensor cores takes operands of the inputs' dtype. P and dS are such operands, and the
results are stored so. Where dS is a difference of nearly equal numbers, as with two keys, this
costs the gradients several times the dtype's rounding; how much depends on the inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from attention_truth import visible

__all__ = ["rounded_attention"]


@torch.no_grad()
def rounded_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    of_out: torch.Tensor,
    of_lse: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    causal: str | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, dQ, dK and dV, float64 numbers that the dtype of q has.

    of_out, of_lse: the gradients of output and LSE. out: the rounded output that the backward is
    given, if not the one that is returned: its roundings are in every row's delta.
    """

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype).double()

    def of_key_heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(1, (-1, group)).sum(2)

    dtype, group = q.dtype, q.shape[1] // k.shape[1]
    scale = q.shape[-1] ** -0.5
    q, of_out = q.double(), of_out.double()
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.mT * scale
    slope: Any = 1.0
    if softcap is not None:
        tanh = torch.tanh(scores / softcap)
        scores, slope = softcap * tanh, 1 - tanh * tanh
    seen = visible(q.shape[2], k.shape[2], causal, window).to(q.device)
    scores = torch.where(seen, scores, -torch.inf)
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top.isfinite(), top, 0.0))
    total = weights.sum(-1, keepdim=True)
    total = torch.where(total > 0, total, 1.0)
    made = rounded(rounded(weights) @ v / total)
    p = weights / total
    delta = ((made if out is None else out.double()) * of_out).sum(-1, keepdim=True)
    if of_lse is not None:
        delta = delta - of_lse.double()[..., None]
    ds = rounded(p * (of_out @ v.mT - delta) * slope)
    dq = rounded(ds @ k * scale)
    dk = rounded(of_key_heads(ds.mT @ q) * scale)
    return made, dq, dk, rounded(of_key_heads(rounded(p).mT @ of_out))
