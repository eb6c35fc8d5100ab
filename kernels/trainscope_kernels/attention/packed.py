"""Attention of packed sequences in eager torch: one sequence after the other.

Reads the offsets on the host, so on a GPU it waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from trainscope_kernels.attention import reference
from trainscope_kernels.attention.call import Call

__all__ = ["backward", "forward"]


def _sequences(call: Call) -> Iterator[tuple[slice, slice, Call]]:
    """Of each sequence its rows, its keys, and the call that it would be by itself."""
    assert call.cu_q is not None
    assert call.cu_k is not None
    of_q, of_k = call.cu_q.tolist(), call.cu_k.tolist()
    for b in range(len(of_q) - 1):
        rows, keys = slice(of_q[b], of_q[b + 1]), slice(of_k[b], of_k[b + 1])
        q, k, v = call.q[:, :, rows], call.k[:, :, keys], call.v[:, :, keys]
        yield rows, keys, call._replace(q=q, k=k, v=v, cu_q=None, cu_k=None)


def forward(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (1, heads, total, value dim), 0 outside all sequences, and LSE, -inf there."""
    q = call.q
    out = q.new_zeros((*q.shape[:3], call.v.shape[3]))
    wide = torch.promote_types(q.dtype, torch.float32)
    lse = q.new_full(q.shape[:3], -torch.inf, dtype=wide)
    for rows, _, one in _sequences(call):
        out[:, :, rows], lse[:, :, rows] = reference.forward(one)
    return out, lse


def backward(
    call: Call,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v, 0 outside all sequences."""
    grads = torch.zeros_like(call.q), torch.zeros_like(call.k), torch.zeros_like(call.v)
    for rows, keys, one in _sequences(call):
        grads[0][:, :, rows], grads[1][:, :, keys], grads[2][:, :, keys] = reference.backward(
            one,
            grad_out[:, :, rows],
            None if grad_lse is None else grad_lse[:, :, rows],
            out[:, :, rows],
            lse[:, :, rows],
        )
    return grads
