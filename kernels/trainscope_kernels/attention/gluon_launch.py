"""Launches of the Gluon attention backward: tile sizes, workspaces; the forward's by name."""

from __future__ import annotations

from typing import Any

import torch

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_backward import attention_backward
from trainscope_kernels.attention.gluon_dq import attention_dq
from trainscope_kernels.attention.gluon_forward_launch import forward, is_scheduled
from trainscope_kernels.attention.gluon_row_terms import attention_row_terms
from trainscope_kernels.attention.gluon_schedule import heads_together
from trainscope_kernels.attention.gluon_start import readable, start, tensor_map

__all__ = ["backward", "forward", "is_scheduled"]

LOG2E = 1.4426950408889634
ROWS = 64
"""Queries of one wgmma; the hardware has no other."""
KEYS = 128
STAGES = 2
BACKWARD = {
    # Columns of K and of V that are register operands; the rest is read from shared memory, whose
    # bandwidth is the limit. At 128 the mask of a causal call leaves no room for V's half.
    (128, False): (0, 64),
    (128, True): (0, 0),
    (64, False): (64, 64),
    (64, True): (64, 64),
}


def backward(
    call: Call,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
    grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Fill ``grads``, those of q, k and v, in their shapes.

    Empty ones are left so, and cost as much: one kernel makes all three. Takes 4 bytes an element
    of q for dQ's workspace, and 8 a row.
    """
    device: Any = call.q.device.index
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return backward(call, grad_out, grad_lse, out, lse, grads)
    q, k, v = call[:3]
    scale, causal = call.scale, call.right == 0
    batch, heads, queries, dim = q.shape
    _, key_heads, keys, _ = k.shape
    group = heads // key_heads
    shift = keys - queries if causal and call.from_end else 0
    row_blocks = -(-queries // ROWS)
    key_blocks = -(-keys // KEYS)
    ragged_rows = queries % ROWS != 0
    dq, dk, dv = (
        grad if grad.numel() else x.new_empty(x.shape)
        for grad, x in zip(grads, (q, k, v), strict=True)
    )
    q, k, v = readable(q), readable(k), readable(v)
    out, grad_out = readable(out), readable(grad_out)
    padded = (batch * heads, row_blocks * ROWS)
    terms = torch.empty((*padded, 2), device=q.device, dtype=torch.float32)
    workspace = torch.zeros((*padded, dim), device=q.device, dtype=torch.float32)
    start(
        attention_row_terms,
        batch * heads * row_blocks,
        (device, q.dtype, dim, ragged_rows, out.stride(), grad_out.stride(), grad_lse is None),
        (
            out,
            grad_out,
            lse.contiguous(),
            lse if grad_lse is None else grad_lse.contiguous(),
            terms,
            out.stride()[:3],
            grad_out.stride()[:3],
            queries,
            row_blocks,
            heads,
            1.0 / scale,
        ),
        ROWS=ROWS,
        DIM=dim,
        RAGGED=ragged_rows,
        HAS_GRAD_LSE=grad_lse is not None,
    )
    # the Q and dO of a key head's queries are read, and their workspace is added to, by all its
    # key blocks
    together = 1
    instances, most = batch * key_heads, heads_together(group * queries * dim * 8)
    while together * 2 <= most and instances % (together * 2) == 0:
        together *= 2
    # queries see keys up to the last one's own: where those all exist the mask hides the rest
    ragged_keys = keys % KEYS != 0 and not (causal and queries + shift <= keys)
    k_in_registers, v_in_registers = BACKWARD[dim, causal]
    start(
        attention_backward,
        instances * key_blocks,
        (device, q.dtype, dim, causal, ragged_keys, group > 1),
        (
            tensor_map(q, ROWS),
            tensor_map(k, KEYS),
            tensor_map(v, KEYS),
            tensor_map(grad_out, ROWS),
            tensor_map(dk, KEYS // 2),
            tensor_map(dv, KEYS // 2),
            terms,
            workspace,
            keys,
            row_blocks,
            key_blocks,
            key_heads,
            group,
            shift,
            together,
            float(scale),
            scale * LOG2E,
        ),
        CAUSAL=causal,
        RAGGED=ragged_keys,
        GROUPED=group > 1,
        ROWS=ROWS,
        KEYS=KEYS,
        DIM=dim,
        STAGES=STAGES,
        K_IN_REGISTERS=k_in_registers,
        V_IN_REGISTERS=v_in_registers,
    )
    start(
        attention_dq,
        batch * heads * row_blocks * 2,
        (device, q.dtype, dim, ragged_rows, dq.stride()),
        (workspace, dq, dq.stride()[:3], queries, row_blocks, heads, float(scale)),
        ROWS=ROWS,
        DIM=dim,
        RAGGED=ragged_rows,
    )
