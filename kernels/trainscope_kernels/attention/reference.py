"""Attention in eager torch, written out step by step; it holds the whole score matrix.

Computes in float64 for float64 inputs, else in float32, on any device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.masking import visible_keys

__all__ = ["backward", "forward"]

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Scores(NamedTuple):
    """Logits (batch, heads, queries, keys), -inf where hidden, and the softcap's slope."""

    logits: torch.Tensor
    slope: torch.Tensor | None


def forward(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (batch, heads, queries, value dim) and natural-log LSE (batch, heads, queries).

    A query that sees no key has output 0 and LSE -inf.
    """
    q, k, v = call[:3]
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = _scores(call, q.to(wide), _per_query_head(k, q).to(wide))
    lse = torch.logsumexp(scores.logits, dim=-1)
    out = _probabilities(scores.logits, lse) @ _per_query_head(v, q).to(wide)
    return out.to(q.dtype), lse


def backward(
    call: Call,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> Gradients:
    """Gradients of q, k and v, in their dtypes, the probabilities made anew."""
    q, k, v = call[:3]
    wide = lse.dtype
    keys, values = _per_query_head(k, q).to(wide), _per_query_head(v, q).to(wide)
    grad = grad_out.to(wide)
    scores = _scores(call, q.to(wide), keys)
    p = _probabilities(scores.logits, lse)
    delta = (grad * out.to(wide)).sum(-1)
    if grad_lse is not None:
        # d lse / d logit is p itself, so the gradient of the LSE joins the row term
        delta = delta - grad_lse
    grad_logits = p * (grad @ values.mT - delta[..., None])
    if scores.slope is not None:
        grad_logits = grad_logits * scores.slope
    grad_q = (grad_logits @ keys) * call.scale
    grad_k = (grad_logits.mT @ q.to(wide)) * call.scale
    grad_v = p.mT @ grad
    return (
        grad_q.to(q.dtype),
        _summed_over_group(grad_k, k).to(k.dtype),
        _summed_over_group(grad_v, v).to(v.dtype),
    )


def _scores(call: Call, q: torch.Tensor, k: torch.Tensor) -> Scores:
    """From q and k in the dtype to compute in, k with as many heads as q."""
    logits = (q @ k.mT) * call.scale
    slope = None
    if call.softcap > 0:
        capped = torch.tanh(logits / call.softcap)
        logits, slope = capped * call.softcap, 1 - capped * capped
    if call.mask is not None:
        if call.mask.dtype == torch.bool:
            logits = logits.masked_fill(~call.mask, -torch.inf)
        else:
            logits = logits + call.mask.to(logits.dtype)
    visible = visible_keys(q.shape[-2], k.shape[-2], call.band, q.device)
    if visible is not None:
        logits = logits.masked_fill(~visible, -torch.inf)
    return Scores(logits, slope)


def _probabilities(logits: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Softmax of the logits; 0 in rows that see no key, where that would be NaN.

    Not exp(logits - lse): beside a mask of billions the LSE has no digit left of the sum.
    """
    return torch.softmax(logits, dim=-1).masked_fill((lse == -torch.inf)[..., None], 0.0)


def _per_query_head(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Repeat each key or value head for the query heads of its group."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) if x.shape[1] != q.shape[1] else x


def _summed_over_group(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    if grad.shape[1] == x.shape[1]:
        return grad
    return grad.unflatten(1, (x.shape[1], grad.shape[1] // x.shape[1])).sum(2)
