"""Launches of the Gluon backward where dQ has a kernel of its own: wide heads, packed sequences."""

from __future__ import annotations

import torch

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_backward_sizes import (
    ROWS,
    Band,
    Sizes,
    band_of,
    factors_of,
    power_of_two,
)
from trainscope_kernels.attention.gluon_packed import RECORD, block_records
from trainscope_kernels.attention.gluon_queries_backward import attention_queries_backward
from trainscope_kernels.attention.gluon_schedule import heads_together
from trainscope_kernels.attention.gluon_start import start, tensor_map
from trainscope_kernels.attention.gluon_wide_backward import attention_wide_backward

__all__ = ["keys_and_values_alone", "queries_alone"]

WIDE_KEYS = 64
STAGES = 2
QUERIES_ALONE = {
    # head_dim padded: keys of a step, stages of V. Two of V at 256 are more than an SM has.
    64: (128, 2),
    128: (128, 2),
    256: (64, 1),
}

Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def keys_and_values_alone(
    call: Call,
    sizes: Sizes,
    tensors: Four,
    terms: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
) -> None:
    """dK and dV of q, k, v and dO, whatever the head dimension, in sequences or not."""
    q, k, v, grad_out = tensors
    width, group = sizes.width, sizes.group
    band, factors = band_of(call), factors_of(call)
    if band.is_open and factors.capped:
        # at 256 what looks for a band keeps ptxas from loading the next row terms too early,
        # which spills
        band = Band(band.low, band.high, "band")
    key_blocks = -(-sizes.keys // WIDE_KEYS)
    records = records_of(call, WIDE_KEYS, of_keys=True)
    if records is not None:
        key_blocks = records.shape[0] - 1
    kind = band.mask, factors.capped, group > 1, records is not None
    start(
        attention_wide_backward,
        sizes.batch * sizes.key_heads * key_blocks,
        (q.device.index, q.dtype, sizes.dim, *kind),
        (
            tensor_map(q, ROWS, width),
            tensor_map(k, WIDE_KEYS, width),
            tensor_map(v, WIDE_KEYS, width),
            tensor_map(grad_out, ROWS, width),
            tensor_map(dk, WIDE_KEYS, width),
            tensor_map(dv, WIDE_KEYS, width),
            dk,
            dv,
            terms,
            terms if records is None else records,
            *(dk.stride(1) // 8, dk.stride(2) // 8, dv.stride(1) // 8, dv.stride(2) // 8),
            sizes.keys,
            sizes.row_blocks,
            key_blocks,
            sizes.key_heads,
            group,
            band.low,
            band.high,
            sizes.key_heads_together,
            float(call.scale),
            factors.log2_scale,
            factors.tanh_scale,
        ),
        MASK=band.mask,
        CAPPED=factors.capped,
        GROUPED=group > 1,
        PACKED=records is not None,
        RECORD=RECORD,
        ROWS=ROWS,
        KEYS=WIDE_KEYS,
        DIM=width,
        COLUMNS=sizes.dim,
        STAGES=STAGES,
    )


def queries_alone(
    call: Call, sizes: Sizes, tensors: Four, terms: torch.Tensor, dq: torch.Tensor
) -> None:
    """dQ of q, k, v and dO, in a kernel of its own."""
    q, k, v, grad_out = tensors
    width = sizes.width
    band, factors = band_of(call), factors_of(call)
    keys, v_stages = QUERIES_ALONE[width]
    row_blocks = -(-sizes.queries // (2 * ROWS))
    instances = sizes.batch * sizes.heads
    records = records_of(call, 2 * ROWS, of_keys=False)
    if records is not None:
        row_blocks = records.shape[0] - 1
    # a head's K and V are read by all its row blocks
    together = power_of_two(instances, heads_together(sizes.keys * width * 4))
    start(
        attention_queries_backward,
        instances * row_blocks,
        (q.device.index, q.dtype, sizes.dim, band.mask, factors.capped, records is not None),
        (
            tensor_map(q, ROWS, width),
            tensor_map(k, keys, width),
            tensor_map(v, keys, width),
            tensor_map(grad_out, ROWS, width),
            tensor_map(dq, ROWS, width),
            dq,
            terms,
            terms if records is None else records,
            *(dq.stride(1) // 8, dq.stride(2) // 8),
            sizes.keys,
            row_blocks,
            sizes.row_blocks * ROWS,
            sizes.heads,
            sizes.group,
            band.low,
            band.high,
            together,
            float(call.scale),
            factors.log2_scale,
            factors.tanh_scale,
        ),
        MASK=band.mask,
        CAPPED=factors.capped,
        PACKED=records is not None,
        RECORD=RECORD,
        ROWS=ROWS,
        KEYS=keys,
        DIM=width,
        COLUMNS=sizes.dim,
        K_STAGES=STAGES,
        V_STAGES=v_stages,
    )


def records_of(call: Call, rows: int, *, of_keys: bool) -> torch.Tensor | None:
    """Blocks of packed sequences: of queries, or with both exchanged and the band turned over."""
    if call.cu_q is None or call.cu_k is None:
        return None
    queries, keys = call.q.shape[2], call.k.shape[2]
    if of_keys:
        turned = call.band._replace(left=call.right, right=call.left)
        return block_records(call.cu_k, call.cu_q, rows, keys, queries, turned)
    return block_records(call.cu_q, call.cu_k, rows, queries, keys, call.band)
