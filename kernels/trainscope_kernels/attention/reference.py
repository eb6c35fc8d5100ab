"""Attention in eager torch, written out step by step; it holds the whole score matrix.

Computes in float64 for float64 inputs, else in float32, on any device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from trainscope_kernels.attention.masking import Band, visible_keys

__all__ = ["backward", "forward"]

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Scores(NamedTuple):
    """Logits (batch, heads, queries, keys), -inf where hidden, and the softcap's slope."""

    logits: torch.Tensor
    slope: torch.Tensor | None


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float,
    band: Band,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (batch, heads, queries, value dim) and natural-log LSE (batch, heads, queries).

    A query that sees no key has output 0 and LSE -inf.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = _scores(q.to(wide), _per_query_head(k, q).to(wide), mask, scale, softcap, band)
    lse = torch.logsumexp(scores.logits, dim=-1)
    out = _probabilities(scores.logits, lse) @ _per_query_head(v, q).to(wide)
    return out.to(q.dtype), lse


def backward(
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float,
    band: Band,
) -> Gradients:
    """Gradients of q, k and v, in their dtypes, the probabilities made anew from the LSE."""
    wide = lse.dtype
    keys, values = _per_query_head(k, q).to(wide), _per_query_head(v, q).to(wide)
    grad = grad_out.to(wide)
    scores = _scores(q.to(wide), keys, mask, scale, softcap, band)
    p = _probabilities(scores.logits, lse)
    delta = (grad * out.to(wide)).sum(-1)
    if grad_lse is not None:
        # d lse / d logit is p itself, so the gradient of the LSE joins the row term
        delta = delta - grad_lse
    grad_logits = p * (grad @ values.mT - delta[..., None])
    if scores.slope is not None:
        grad_logits = grad_logits * scores.slope
    grad_q = (grad_logits @ keys) * scale
    grad_k = (grad_logits.mT @ q.to(wide)) * scale
    grad_v = p.mT @ grad
    return (
        grad_q.to(q.dtype),
        _summed_over_group(grad_k, k).to(k.dtype),
        _summed_over_group(grad_v, v).to(v.dtype),
    )


def _scores(
    q: torch.Tensor,
    k: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float,
    band: Band,
) -> Scores:
    logits = (q @ k.mT) * scale
    slope = None
    if softcap > 0:
        capped = torch.tanh(logits / softcap)
        logits, slope = capped * softcap, 1 - capped * capped
    if mask is not None and mask.dtype != torch.bool:
        logits = logits + mask.to(logits.dtype)
    if mask is not None and mask.dtype == torch.bool:
        logits = logits.masked_fill(~mask, -torch.inf)
    visible = visible_keys(q.shape[-2], k.shape[-2], band, q.device)
    if visible is not None:
        logits = logits.masked_fill(~visible, -torch.inf)
    return Scores(logits, slope)


def _probabilities(logits: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """exp(logits - lse); 0 in rows that see no key, where that would be exp(-inf + inf)."""
    empty = lse == -torch.inf
    return torch.exp(logits - lse.masked_fill(empty, 0.0)[..., None])


def _per_query_head(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Repeat each key or value head for the query heads of its group."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) if x.shape[1] != q.shape[1] else x


def _summed_over_group(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    if grad.shape[1] == x.shape[1]:
        return grad
    return grad.unflatten(1, (x.shape[1], grad.shape[1] // x.shape[1])).sum(2)
