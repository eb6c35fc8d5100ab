"""FlashAttention backward for keys and values: one program a tile of keys, over all its queries.

Scores are made anew, transposed, from the LSE; the query heads of a group are summed here, so
each gradient has one writer: no atomics, the same bits every run.
"""

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

__all__ = ["attention_dkdv", "dkdv"]


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def attention_dkdv(
    q, k, v, mask, grad_out, row_terms, grad_k, grad_v, cu_q, cu_k,
    q_strides, k_strides, v_strides, mask_strides, grad_strides, grad_k_strides, grad_v_strides,
    n_q, n_k, heads, group, instances, tiles, sequences, together, scale, softcap, left, right,
    META: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_N keys of one key head; ``heads`` counts key heads here."""
    tile, instance = tile_and_head(tl.program_id(0), tiles, instances, together)
    batch = (instance // heads).to(tl.int64)
    head = (instance % heads).to(tl.int64)
    row_terms += instance.to(tl.int64) * group * n_q * 4
    terms_of_head = n_q.to(tl.int64) * 4
    q += batch * q_strides[0]
    grad_out += batch * grad_strides[0]
    k += batch * k_strides[0] + head * k_strides[1]
    v += batch * v_strides[0] + head * v_strides[1]
    grad_k += batch * grad_k_strides[0] + head * grad_k_strides[1]
    grad_v += batch * grad_v_strides[0] + head * grad_v_strides[1]
    if META.VARLEN:
        tile, q_from, n_q, k_from, n_k = packed_sequence(
            tile, cu_k, cu_q, cu_k, n_q, n_k, sequences, META.BLOCK_N
        )
        q += q_from.to(tl.int64) * q_strides[2]
        grad_out += q_from.to(tl.int64) * grad_strides[2]
        k += k_from.to(tl.int64) * k_strides[2]
        v += k_from.to(tl.int64) * v_strides[2]
        grad_k += k_from.to(tl.int64) * grad_k_strides[2]
        grad_v += k_from.to(tl.int64) * grad_v_strides[2]
        row_terms += q_from.to(tl.int64) * 4
    first = tile * META.BLOCK_N
    if first >= n_k:
        return
    shift = 0
    if META.FROM_END:
        shift = n_k - n_q
    # seen from the keys, the band's two sides change places
    limits = block_limits(
        first, first + META.BLOCK_N - 1, n_q, -shift, right, left,
        META.BLOCK_M, META.HAS_RIGHT, META.HAS_LEFT, META.MASK != "none",
    )  # fmt: skip
    keys = (first + tl.arange(0, META.BLOCK_N))[:, None]
    k_tile = load_rows(
        k, first, n_k, k_strides[2], k_strides[3], META.BLOCK_N, META.DIM, META.BLOCK_DIM, True,
        META.OFFSET,
    )  # fmt: skip
    v_tile = load_rows(
        v, first, n_k, v_strides[2], v_strides[3], META.BLOCK_N, META.VALUE_DIM, META.BLOCK_VALUE,
        True, META.OFFSET,
    )  # fmt: skip
    acc_k = tl.zeros([META.BLOCK_N, META.BLOCK_DIM], META.WIDE)
    acc_v = tl.zeros([META.BLOCK_N, META.BLOCK_VALUE], META.WIDE)
    for member in range(group):
        q_head = head * group + member
        # the queries in three parts: those that need a mask before, none, and a mask again
        for part in tl.static_range(3):
            if (
                (part == 0 and META.HAS_RIGHT and META.MASK == "none")
                or (part == 1 and META.MASK == "none")
                or (part == 2 and (META.HAS_LEFT or META.RAGGED or META.MASK != "none"))
            ):
                for start in tl.range(limits[part], limits[part + 1], META.BLOCK_M):
                    q_tile = load_rows(
                        q + q_head * q_strides[1], start, n_q, q_strides[2], q_strides[3],
                        META.BLOCK_M, META.DIM, META.BLOCK_DIM, part != 1, META.OFFSET,
                    )  # fmt: skip
                    log2_lse, minus_delta = load_terms(
                        row_terms + member * terms_of_head, start, n_q, META.BLOCK_M, part != 1
                    )
                    s = tl.dot(
                        k_tile, q_tile.T, input_precision=META.PRECISION, out_dtype=META.WIDE
                    )
                    if META.SOFTCAP:
                        capped = soft_tanh(s * (scale / softcap))
                        s = capped * (softcap * LOG2E)
                    else:
                        s = s * (scale * LOG2E)
                    if part != 1:
                        queries = (start + tl.arange(0, META.BLOCK_M))[None, :]
                        visible = in_band(
                            queries, keys, n_q, n_k, shift, left, right, META.HAS_LEFT,
                            META.HAS_RIGHT,
                        )  # fmt: skip
                        if META.MASK != "none":
                            of_mask = mask + batch * mask_strides[0] + q_head * mask_strides[1]
                            s, visible = add_mask(
                                s, visible, of_mask, queries, keys, n_q, n_k,
                                mask_strides[2], mask_strides[3], META.MASK == "add",
                            )  # fmt: skip
                    p = probability(s, log2_lse[None, :], META.MASK == "add")
                    if part != 1:
                        # a hidden score may lie far above the LSE: its exp2 can be inf
                        p = tl.where(visible, p, 0.0)
                    grad_tile = load_rows(
                        grad_out + q_head * grad_strides[1], start, n_q,
                        grad_strides[2], grad_strides[3],
                        META.BLOCK_M, META.VALUE_DIM, META.BLOCK_VALUE, part != 1, META.OFFSET,
                    )  # fmt: skip
                    acc_v = tl.dot(
                        p.to(grad_tile.dtype), grad_tile, acc_v,
                        input_precision=META.PRECISION, out_dtype=META.WIDE,
                    )  # fmt: skip
                    # delta goes in as the start of the accumulator: fewer registers, no spills
                    grad_p = tl.dot(
                        v_tile, grad_tile.T,
                        tl.broadcast_to(minus_delta[None, :], [META.BLOCK_N, META.BLOCK_M]),
                        input_precision=META.PRECISION, out_dtype=META.WIDE,
                    )  # fmt: skip
                    grad_s = p * grad_p
                    if META.SOFTCAP:
                        grad_s = grad_s * (1.0 - capped * capped)
                    acc_k = tl.dot(
                        grad_s.to(q_tile.dtype), q_tile, acc_k,
                        input_precision=META.PRECISION, out_dtype=META.WIDE,
                    )  # fmt: skip
    store_rows(
        grad_k, acc_k * scale, first, n_k, grad_k_strides[2], META.BLOCK_N, META.DIM,
        META.BLOCK_DIM, META.OFFSET,
    )  # fmt: skip
    store_rows(
        grad_v, acc_v, first, n_k, grad_v_strides[2], META.BLOCK_N, META.VALUE_DIM,
        META.BLOCK_VALUE, META.OFFSET,
    )  # fmt: skip


def dkdv(
    call: Call,
    grad_out: torch.Tensor,
    row_terms: torch.Tensor,
    grad_k: torch.Tensor,
    grad_v: torch.Tensor,
    tile: Tile | None = None,
) -> None:
    """Fill ``grad_k`` and ``grad_v``, shaped like k and v, their last dimension dense."""
    q, k, v, mask, cu_q, cu_k = call[:6]
    made = (grad_out, grad_k, grad_v)
    start(
        attention_dkdv,
        (q, k, v, mask, grad_out, row_terms, grad_k, grad_v, cu_q, cu_k),
        kind_of(call, tile, grad_out.stride(), grad_out.dtype),
        lambda: _plan(call, made, tile or pick_tile("dkdv", q, v, mask)),
    )


def _plan(call: Call, made: tuple[torch.Tensor, ...], tile: Tile) -> Launch:
    _, heads, n_k, _ = call.k.shape
    return planned(
        call,
        made,
        tile,
        heads,
        tile_count(n_k, tile.keys, call.cu_k),
        ragged=call.cu_q is not None or call.q.shape[2] % tile.queries != 0,
    )
