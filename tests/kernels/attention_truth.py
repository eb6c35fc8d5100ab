"""Attention in float64, written by itself from the definition, for the tests to compare with."""

from __future__ import annotations

from typing import Any

import torch


def visible(queries: int, keys: int, causal: str | None, window: tuple[int, int] | None) -> Any:
    """For each query the keys it may see."""
    shift = 0 if causal == "top-left" else keys - queries
    left, right = window or (-1, -1)
    ahead = torch.arange(keys)[None, :] - (torch.arange(queries)[:, None] + shift)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal is not None:
        seen &= ahead <= 0
    if left >= 0:
        seen &= -ahead <= left
    if right >= 0:
        seen &= ahead <= right
    return seen


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: str | None = None,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and natural-log LSE; differentiable through torch's own operations."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    seen = visible(q.shape[2], k.shape[2], causal, window).to(q.device)
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask.double()
        seen = seen & (mask != -torch.inf)
    elif mask is not None:
        seen = seen & mask
    if k.shape[2] == 0:
        return q.new_zeros((*q.shape[:3], v.shape[3])), q.new_full(q.shape[:3], -torch.inf)
    some = seen.any(-1).expand(scores.shape[:-1])
    # what is hidden gets a finite score and no weight, so that no gradient is 0 * inf
    weights = torch.where(seen, scores, torch.zeros_like(scores))
    top = torch.where(seen, scores, -torch.inf).amax(-1, keepdim=True).detach()
    top = torch.where(some[..., None], top, torch.zeros_like(top))
    weights = torch.where(seen, torch.exp(weights - top), torch.zeros_like(weights))
    total = weights.sum(-1)
    total_or_one = torch.where(some, total, torch.ones_like(total))
    out = weights @ v / total_or_one[..., None]
    lse = torch.where(some, torch.log(total_or_one) + top[..., 0], -torch.inf)
    return out, lse
