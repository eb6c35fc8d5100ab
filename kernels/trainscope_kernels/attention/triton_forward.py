"""FlashAttention forward in Triton: online softmax over tiles of keys, no score ever in memory."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
# (what @triton.jit adds to a function, and loops over tl.static_range, are not in Triton's types)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.tile_sizes import Tile, pick_tile
from trainscope_kernels.attention.triton_launch import (
    Launch,
    kind_of,
    planned,
    start,
    start_of,
    tile_count,
)
from trainscope_kernels.attention.triton_meta import NOT_SPECIALIZED
from trainscope_kernels.attention.triton_scores import (
    LOG2E,
    add_mask,
    block_limits,
    in_band,
    soft_tanh,
)
from trainscope_kernels.attention.triton_tiles import (
    load_rows,
    packed_sequence,
    store_rows,
    tile_and_head,
)
from trainscope_kernels.repeats import Again

__all__ = ["attention_forward", "forward", "forward_again"]


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def attention_forward(
    q, k, v, mask, out, lse, cu_q, cu_k,
    q_strides, k_strides, v_strides, mask_strides, out_strides,
    n_q, n_k, heads, group, instances, tiles, sequences, together, scale, softcap, left, right,
    META: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M queries of one head against all keys that they may see.

    lse: None where only the output is wanted.
    """
    tile, instance = tile_and_head(tl.program_id(0), tiles, instances, together)
    batch = (instance // heads).to(tl.int64)
    head = (instance % heads).to(tl.int64)
    if lse is not None:
        # lengths of the whole packed batch, for where the LSE of a head begins
        lse += instance.to(tl.int64) * n_q
    q += batch * q_strides[0] + head * q_strides[1]
    k += batch * k_strides[0] + (head // group) * k_strides[1]
    v += batch * v_strides[0] + (head // group) * v_strides[1]
    out += batch * out_strides[0] + head * out_strides[1]
    if META.MASK != "none":
        mask += batch * mask_strides[0] + head * mask_strides[1]
    if META.VARLEN:
        tile, q_from, n_q, k_from, n_k = packed_sequence(
            tile, cu_q, cu_q, cu_k, n_q, n_k, sequences, META.BLOCK_M
        )
        q += q_from.to(tl.int64) * q_strides[2]
        k += k_from.to(tl.int64) * k_strides[2]
        v += k_from.to(tl.int64) * v_strides[2]
        out += q_from.to(tl.int64) * out_strides[2]
        if lse is not None:
            lse += q_from
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
        first, first + META.BLOCK_M - 1, n_k, shift, left, right, META.BLOCK_N, META.HAS_LEFT,
        META.HAS_RIGHT, META.MASK != "none",
    )  # fmt: skip
    rows = first + tl.arange(0, META.BLOCK_M)
    queries = rows[:, None]
    q_tile = load_rows(
        q, first, n_q, q_strides[2], q_strides[3], META.BLOCK_M, META.DIM, META.BLOCK_DIM, True,
        META.OFFSET,
    )  # fmt: skip
    # Where the scale is positive and nothing else touches the scores, it is applied in the fused
    # multiply-add in front of exp2; elsewhere the scores must be final before their maximum.
    factor = scale * LOG2E if META.FOLD else 1.0
    top = tl.full([META.BLOCK_M], -float("inf"), META.WIDE)
    total = tl.zeros([META.BLOCK_M], META.WIDE)
    acc = tl.zeros([META.BLOCK_M, META.BLOCK_VALUE], META.WIDE)
    # the keys in three parts: those that need a mask before, none, and a mask again
    for part in tl.static_range(3):
        if (
            (part == 0 and META.HAS_LEFT and META.MASK == "none")
            or (part == 1 and META.MASK == "none")
            or (part == 2 and (META.HAS_RIGHT or META.RAGGED or META.MASK != "none"))
        ):
            # Two pipelined loops that hand the accumulator over make ptxas serialise every wgmma
            # of both (C7515): beside the loop without a mask the short ones stay unpipelined.
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
                s = tl.dot(q_tile, k_tile.T, input_precision=META.PRECISION, out_dtype=META.WIDE)
                if META.SOFTCAP:
                    s = soft_tanh(s * (scale / softcap)) * (softcap * LOG2E)
                elif not META.FOLD:
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
                    s = tl.where(visible, s, -float("inf"))
                new_top = tl.maximum(top, tl.max(s, 1) * factor)
                # a row that has seen no key yet has maximum -inf, and -inf - -inf is NaN
                base = tl.where(new_top == -float("inf"), 0.0, new_top) if part != 1 else new_top
                p = tl.exp2(s * factor - base[:, None])
                shrink = tl.exp2(top - base)
                total = total * shrink + tl.sum(p, 1)
                v_tile = load_rows(
                    v, start, n_k, v_strides[2], v_strides[3],
                    META.BLOCK_N, META.VALUE_DIM, META.BLOCK_VALUE, part != 1, META.OFFSET,
                )  # fmt: skip
                acc = acc * shrink[:, None]
                acc = tl.dot(
                    p.to(v_tile.dtype),
                    v_tile,
                    acc,
                    input_precision=META.PRECISION,
                    out_dtype=META.WIDE,
                )
                top = new_top
    seen = tl.where(total == 0, 1.0, total)
    acc = acc / seen[:, None]
    store_rows(
        out, acc, first, n_q, out_strides[2], META.BLOCK_M, META.VALUE_DIM, META.BLOCK_VALUE,
        META.OFFSET,
    )  # fmt: skip
    if lse is not None:
        tl.store(lse + rows, (top + tl.log2(seen)) / LOG2E, mask=rows < n_q)


def forward(call: Call, out: torch.Tensor, lse: torch.Tensor, tile: Tile | None = None) -> None:
    """Fill ``out`` (batch, heads, queries, value dim) and ``lse`` (batch, heads, queries)."""
    q, k, v, mask, cu_q, cu_k = call[:6]
    start(
        attention_forward,
        (q, k, v, mask, out, lse, cu_q, cu_k),
        kind_of(call, tile),
        lambda: _plan(call, out, tile or pick_tile("forward", q, v, mask)),
    )


def forward_again(
    call: Call, out: torch.Tensor, lse: torch.Tensor, return_lse: bool
) -> Again | None:
    """What makes the output, and the LSE if asked, of q, k and v like the call's.

    out, lse: as ``forward`` gets them; new ones are laid out so. None where each call has to be
    looked at: with a mask, or packed sequences.
    """
    q = call.q
    if call.mask is not None or call.cu_q is not None or lse.numel() == 0:
        return None
    dtype = q.dtype
    kinds = (dtype, dtype, dtype, None, dtype, lse.dtype if return_lse else None, None, None)
    launch = _plan(call, out, pick_tile("forward", q, call.v, None))
    start, rest = start_of(attention_forward, q.get_device(), launch, kinds)
    programs = launch.programs
    precision = torch.get_float32_matmul_precision() if dtype == torch.float32 else None
    alike = torch.empty_like(q).stride() == out.stride() and q.shape == out.shape
    shape, strides, device = out.shape, out.stride(), out.device
    lse_shape, lse_strides, wide = lse.shape, lse.stride(), lse.dtype

    def again(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        if precision is not None and precision != torch.get_float32_matmul_precision():
            return None
        if alike:  # the fastest, and it keeps the order of the dimensions in memory
            out = torch.empty_like(q)
        else:
            out = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        to_q, to_k, to_v, to = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        if (to_q | to_k | to_v | to) % 16:
            return None
        if not return_lse:
            start(programs, (to_q, to_k, to_v, None, to, None, None, None), rest)
            return out
        # a third of the time that new_empty takes
        lse = torch.empty_strided(lse_shape, lse_strides, dtype=wide, device=device)
        start(programs, (to_q, to_k, to_v, None, to, lse.data_ptr(), None, None), rest)
        return out, lse

    return again


def _plan(call: Call, out: torch.Tensor, tile: Tile) -> Launch:
    _, heads, n_q, _ = call.q.shape
    simple = call.softcap == 0 and call.mask is None
    return planned(
        call,
        (out,),
        tile,
        heads,
        tile_count(n_q, tile.queries, call.cu_q),
        ragged=call.cu_k is not None or call.k.shape[2] % tile.keys != 0,
        fold=simple and call.scale > 0 and call.q.dtype != torch.float64,
    )
