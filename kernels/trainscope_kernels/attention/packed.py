"""Attention of packed sequences in eager torch: one sequence after the other.

Reads the offsets on the host, so on a GPU it waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from trainscope_kernels.attention import reference
from trainscope_kernels.attention.masking import Band

__all__ = ["backward", "forward"]


def _sequences(cu_q: torch.Tensor, cu_k: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    of_q, of_k = cu_q.tolist(), cu_k.tolist()
    for b in range(len(of_q) - 1):
        yield slice(of_q[b], of_q[b + 1]), slice(of_k[b], of_k[b + 1])


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    scale: float,
    softcap: float,
    band: Band,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (1, heads, total, value dim), 0 outside all sequences, and LSE, -inf there."""
    wide = torch.promote_types(q.dtype, torch.float32)
    total, heads = q.shape[2], q.shape[1]
    out = q.new_zeros((1, total, heads, v.shape[3])).transpose(1, 2)
    lse = torch.full((1, heads, total), -torch.inf, dtype=wide, device=q.device)
    for rows, keys in _sequences(cu_q, cu_k):
        out[:, :, rows], lse[:, :, rows] = reference.forward(
            q[:, :, rows], k[:, :, keys], v[:, :, keys], None, scale, softcap, band
        )
    return out, lse


def backward(
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    softcap: float,
    band: Band,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v, 0 outside all sequences."""
    grads = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for rows, keys in _sequences(cu_q, cu_k):
        grads[0][:, :, rows], grads[1][:, :, keys], grads[2][:, :, keys] = reference.backward(
            grad_out[:, :, rows],
            None if grad_lse is None else grad_lse[:, :, rows],
            q[:, :, rows],
            k[:, :, keys],
            v[:, :, keys],
            out[:, :, rows],
            lse[:, :, rows],
            None,
            scale,
            softcap,
            band,
        )
    return grads
