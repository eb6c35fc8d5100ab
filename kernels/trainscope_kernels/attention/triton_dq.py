"""FlashAttention backward for queries: one program a tile of queries, over all keys it sees."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
# (what @triton.jit adds to a function, and loops over tl.static_range, are not in Triton's types)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.tile_sizes import Tile, pick_tile
from trainscope_kernels.attention.triton_delta import load_terms
from trainscope_kernels.attention.triton_launch import (
    Launch,
    kind_of,
    planned,
    start,
    tile_count,
)
from trainscope_kernels.attention.triton_meta import NOT_SPECIALIZED
from trainscope_kernels.attention.triton_scores import (
    LOG2E,
    add_mask,
    block_limits,
    in_band,
    probability,
    soft_tanh,
)
from trainscope_kernels.attention.triton_tiles import (
    load_rows,
    packed_sequence,
    store_rows,
    tile_and_head,
)

__all__ = ["attention_dq", "dq"]


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def attention_dq(
    q, k, v, mask, grad_out, row_terms, grad_q, cu_q, cu_k,
    q_strides, k_strides, v_strides, mask_strides, grad_strides, grad_q_strides,
    n_q, n_k, heads, group, instances, tiles, sequences, together, scale, softcap, left, right,
    META: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M queries of one head."""
    tile, instance = tile_and_head(tl.program_id(0), tiles, instances, together)
    batch = (instance // heads).to(tl.int64)
    head = (instance % heads).to(tl.int64)
    row_terms += instance.to(tl.int64) * n_q * 4
    q += batch * q_strides[0] + head * q_strides[1]
    k += batch * k_strides[0] + (head // group) * k_strides[1]
    v += batch * v_strides[0] + (head // group) * v_strides[1]
    grad_out += batch * grad_strides[0] + head * grad_strides[1]
    grad_q += batch * grad_q_strides[0] + head * grad_q_strides[1]
    if META.MASK != "none":
        mask += batch * mask_strides[0] + head * mask_strides[1]
    if META.VARLEN:
        tile, q_from, n_q, k_from, n_k = packed_sequence(
            tile, cu_q, cu_q, cu_k, n_q, n_k, sequences, META.BLOCK_M
        )
        q += q_from.to(tl.int64) * q_strides[2]
        k += k_from.to(tl.int64) * k_strides[2]
        v += k_from.to(tl.int64) * v_strides[2]
        grad_out += q_from.to(tl.int64) * grad_strides[2]
        grad_q += q_from.to(tl.int64) * grad_q_strides[2]
        row_terms += q_from.to(tl.int64) * 4
    elif META.HAS_RIGHT:
        # under a causal mask the last queries see the most keys: longest first
        tile = tiles - 1 - tile
    first = tile * META.BLOCK_M
    if first >= n_q:
        return
    shift = 0
    if META.FROM_END:
        shift = n_k - n_q
    limits = block_limits(
        first, first + META.BLOCK_M - 1, n_k, shift, left, right,
        META.BLOCK_N, META.HAS_LEFT, META.HAS_RIGHT, META.MASK != "none",
    )  # fmt: skip
    queries = (first + tl.arange(0, META.BLOCK_M))[:, None]
    q_tile = load_rows(
        q, first, n_q, q_strides[2], q_strides[3], META.BLOCK_M, META.DIM, META.BLOCK_DIM, True,
        META.OFFSET,
    )  # fmt: skip
    grad_tile = load_rows(
        grad_out, first, n_q, grad_strides[2], grad_strides[3],
        META.BLOCK_M, META.VALUE_DIM, META.BLOCK_VALUE, True, META.OFFSET,
    )  # fmt: skip
    log2_lse, minus_delta = load_terms(row_terms, first, n_q, META.BLOCK_M, True)
    acc = tl.zeros([META.BLOCK_M, META.BLOCK_DIM], META.WIDE)
    # the keys in three parts: those that need a mask before, none, and a mask again
    for part in tl.static_range(3):
        if (
            (part == 0 and META.HAS_LEFT and META.MASK == "none")
            or (part == 1 and META.MASK == "none")
            or (part == 2 and (META.HAS_RIGHT or META.RAGGED or META.MASK != "none"))
        ):
            # unpipelined beside the loop without a mask for the reason given in the forward
            for start in tl.range(
                limits[part],
                limits[part + 1],
                META.BLOCK_N,
                num_stages=1 if part != 1 and META.MASK == "none" else None,
            ):
                k_tile = load_rows(
                    k, start, n_k, k_strides[2], k_strides[3],
                    META.BLOCK_N, META.DIM, META.BLOCK_DIM, part != 1, META.OFFSET,
                )  # fmt: skip
                v_tile = load_rows(
                    v, start, n_k, v_strides[2], v_strides[3],
                    META.BLOCK_N, META.VALUE_DIM, META.BLOCK_VALUE, part != 1, META.OFFSET,
                )  # fmt: skip
                s = tl.dot(q_tile, k_tile.T, input_precision=META.PRECISION, out_dtype=META.WIDE)
                grad_p = tl.dot(
                    grad_tile, v_tile.T, input_precision=META.PRECISION, out_dtype=META.WIDE
                )
                if META.SOFTCAP:
                    capped = soft_tanh(s * (scale / softcap))
                    s = capped * (softcap * LOG2E)
                else:
                    s = s * (scale * LOG2E)
                if part != 1:
                    keys = (start + tl.arange(0, META.BLOCK_N))[None, :]
                    visible = in_band(
                        queries, keys, n_q, n_k, shift, left, right, META.HAS_LEFT, META.HAS_RIGHT
                    )
                    if META.MASK != "none":
                        s, visible = add_mask(
                            s, visible, mask, queries, keys, n_q, n_k,
                            mask_strides[2], mask_strides[3], META.MASK == "add",
                        )  # fmt: skip
                p = probability(s, log2_lse[:, None], META.MASK == "add")
                if part != 1:
                    # a hidden score may lie far above the LSE: its exp2 can be inf
                    p = tl.where(visible, p, 0.0)
                grad_s = p * (grad_p + minus_delta[:, None])
                if META.SOFTCAP:
                    grad_s = grad_s * (1.0 - capped * capped)
                acc = tl.dot(
                    grad_s.to(k_tile.dtype), k_tile, acc,
                    input_precision=META.PRECISION, out_dtype=META.WIDE,
                )  # fmt: skip
    store_rows(
        grad_q, acc * scale, first, n_q, grad_q_strides[2], META.BLOCK_M, META.DIM, META.BLOCK_DIM,
        META.OFFSET,
    )  # fmt: skip


def dq(
    call: Call,
    grad_out: torch.Tensor,
    row_terms: torch.Tensor,
    grad_q: torch.Tensor,
    tile: Tile | None = None,
) -> None:
    """Fill ``grad_q``, shaped like q, its last dimension dense."""
    q, k, v, mask, cu_q, cu_k = call[:6]
    start(
        attention_dq,
        (q, k, v, mask, grad_out, row_terms, grad_q, cu_q, cu_k),
        kind_of(call, tile, grad_out.stride(), grad_out.dtype),
        lambda: _plan(call, grad_out, grad_q, tile or pick_tile("dq", q, v, mask)),
    )


def _plan(call: Call, grad_out: torch.Tensor, grad_q: torch.Tensor, tile: Tile) -> Launch:
    _, heads, n_q, _ = call.q.shape
    return planned(
        call,
        (grad_out, grad_q),
        tile,
        heads,
        tile_count(n_q, tile.queries, call.cu_q),
        ragged=call.cu_k is not None or call.k.shape[2] % tile.keys != 0,
    )
