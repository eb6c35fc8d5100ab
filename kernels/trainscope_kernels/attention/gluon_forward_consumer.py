"""A consumer of the Gluon forward: a warpgroup that multiplies, for 64 queries of each tile.

Order, tile i of the keys: S(i) = Q K(i)^T is issued before P(i-1) V(i-1), so that the exponentials
of S(i) run while the tensor cores work on P(i-1) V(i-1). Keys go from the last tile to the first:
the tile that needs a mask (the end, or the diagonal) then stands before the loop and the loop
itself has none. Only a general band asks at each tile whether it needs the mask.

The columns of a head are computed in two parts, MAIN and REST of them, a power of two each or none.
So 96 and 192 cost no more than they have, and the output of 256 leaves through half of the room.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma_wait

from trainscope_kernels.attention.gluon_band import open_keys, tiles_of_warpgroup, tiles_seen
from trainscope_kernels.attention.gluon_forward_parts import (
    add_values,
    empty_rows,
    finite_or_zero,
    hand_back,
    scores,
    store_part,
    sums_by_thread,
    times_rows,
    wait_for_values,
)
from trainscope_kernels.attention.gluon_mask import columns_before, hide_outside_band, soft_tanh
from trainscope_kernels.attention.gluon_pipeline import (
    advance,
    block_of,
    head_and_block,
    tile_after,
    tiles_of_program,
)

__all__ = ["consume"]

LN2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def consume(
    out_map, out, lse, queries, keys, values, out_tiles, schedule, length_q, length_k, low, high,
    head_stride, row_stride, row_blocks, heads, together, log2_scale, to_tanh,
    warpgroup: gl.constexpr, WARPGROUPS: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr,
    DIM: gl.constexpr, MAIN: gl.constexpr, REST: gl.constexpr, STAGES: gl.constexpr,
    Q_STAGES: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, TABLE: gl.constexpr,
    PACKED: gl.constexpr, Q_IN_REGISTERS: gl.constexpr, SUMS_BY_THREAD: gl.constexpr,
):  # fmt: skip
    """A warpgroup: the ROWS queries of each tile that are its own."""
    BLOCK: gl.constexpr = WARPGROUPS * ROWS
    UNEVEN: gl.constexpr = MASK == "band" or (MASK == "diagonal" and BLOCK > KEYS)
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    main_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, MAIN, 16])
    rest_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST or 8, 16])
    s_rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    q_operand: gl.constexpr = gl.DotOperandLayout(0, s_layout, 2)
    p_operand: gl.constexpr = gl.DotOperandLayout(0, main_layout, 2)
    q_tiles, q_full, q_empty = queries
    k_tiles, k_full, k_empty = keys
    v_tiles, v_full, v_empty = values
    dtype: gl.constexpr = q_tiles.dtype
    out_tile = out_tiles.index(warpgroup)
    k_stage, k_phase = 0, 0
    v_stage, v_phase = 0, 0
    q_stage, q_phase = 0, 0
    turns, listed_at, tile = tiles_of_program(schedule, TABLE)
    for turn in range(turns):
        instance, row_block = head_and_block(tile, row_blocks, heads, together, PACKED)
        tile = tile_after(turn, tile, listed_at, TABLE)
        block_row, q_from, queries_here, _, keys_here, first_seen, last_seen = block_of(
            schedule[0], row_block, length_q, length_k, low, high, BLOCK, PACKED
        )
        row = block_row + warpgroup * ROWS
        own_q = q_stage * WARPGROUPS + warpgroup
        mbarrier.wait(q_full.index(own_q), q_phase)
        q_stage, q_phase = advance(q_stage, q_phase, Q_STAGES)
        q_shared = q_tiles.index(own_q).reshape([ROWS, DIM])
        q_main = q_shared.slice(0, MAIN, 1)
        q_rest = q_shared.slice(MAIN, REST, 1) if REST > 0 else q_main
        if Q_IN_REGISTERS >= MAIN:
            q_main = q_main.load(q_operand)
        if REST > 0 and Q_IN_REGISTERS == MAIN + REST:
            q_rest = q_rest.load(q_operand)
        if UNEVEN:
            first, end, block_first, block_end = tiles_of_warpgroup(
                block_row, row, queries_here, first_seen, last_seen, keys_here, ROWS, BLOCK, KEYS,
                MASK,
            )  # fmt: skip
            k_stage, k_phase, v_stage, v_phase = hand_back(
                keys, values, block_end - end, k_stage, k_phase, v_stage, v_phase, STAGES
            )
        else:
            first, end = tiles_seen(row, first_seen, last_seen, keys_here, ROWS, KEYS, MASK)
        # the last tile of keys, the only one with a mask unless that is a general band
        key = (end - 1) * KEYS
        if PACKED:
            empty_rows(values, v_stage, v_phase, keys_here - key, KEYS, DIM)
        zeros = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
        mbarrier.wait(k_full.index(k_stage), k_phase)
        s = scores(q_main, q_rest, k_tiles.index(k_stage).reshape([KEYS, DIM]), zeros, MAIN, REST)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(k_stage), count=1)
        k_stage, k_phase = advance(k_stage, k_phase, STAGES)
        if Q_IN_REGISTERS == MAIN + REST:
            # S has used them: so they have arrived there, which a barrier alone does not tell
            mbarrier.arrive(q_empty.index(own_q), count=1)
        if CAPPED:
            s = soft_tanh(s * to_tanh)
        if MASK == "diagonal":
            column = key + gl.arange(0, KEYS, gl.SliceLayout(0, s_layout))
            last = row + last_seen + gl.arange(0, ROWS, s_rows)
            s = gl.where(last[:, None] >= column[None, :], s, float("-inf"))
        elif MASK == "end":
            s = gl.where(columns_before(s, keys_here - key, False, ROWS, KEYS), s, float("-inf"))
        elif MASK == "band":
            open_begin, open_end = open_keys(row, first_seen, last_seen, keys_here, ROWS, KEYS)
            from_key = row - key
            s = hide_outside_band(
                s, from_key + first_seen, from_key + last_seen, keys_here - key, ROWS, KEYS
            )
        top = gl.max(s, 1) * log2_scale
        base = finite_or_zero(top) if MASK == "band" else top
        p = gl.exp2(s * log2_scale - base[:, None])
        total = sums_by_thread(p, ROWS, KEYS) if SUMS_BY_THREAD else gl.sum(p, 1)
        p16 = gl.convert_layout(p.to(dtype), p_operand)
        out_main = gl.zeros([ROWS, MAIN], gl.float32, main_layout)
        out_rest = gl.zeros([ROWS, REST], gl.float32, rest_layout) if REST > 0 else 0
        for _ in range(end - 1 - first):
            mbarrier.wait(k_full.index(k_stage), k_phase)
            k = k_tiles.index(k_stage).reshape([KEYS, DIM])
            s = scores(q_main, q_rest, k, zeros, MAIN, REST)
            mbarrier.wait(v_full.index(v_stage), v_phase)
            v = v_tiles.index(v_stage).reshape([KEYS, DIM])
            out_main, out_rest = add_values(p16, v, out_main, out_rest, MAIN, REST)
            # wgmmas end in order: with P V's left in flight S is there, and they may not be
            s = warpgroup_mma_wait(2 if REST > 0 else 1, deps=(s,))
            mbarrier.arrive(k_empty.index(k_stage), count=1)
            k_stage, k_phase = advance(k_stage, k_phase, STAGES)
            if CAPPED:
                s = soft_tanh(s * to_tanh)
            if MASK == "band":
                key -= KEYS
                if (key < open_begin) | (key >= open_end):
                    from_key = row - key
                    s = hide_outside_band(
                        s, from_key + first_seen, from_key + last_seen, keys_here - key, ROWS, KEYS
                    )
            new_top = gl.maximum(top, gl.max(s, 1) * log2_scale)
            base = finite_or_zero(new_top) if MASK == "band" else new_top
            p = gl.exp2(s * log2_scale - base[:, None])
            shrink = gl.exp2(top - base)
            top = new_top
            if SUMS_BY_THREAD:
                factor = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))
                total = total * factor[:, None] + sums_by_thread(p, ROWS, KEYS)
            else:
                total = total * shrink + gl.sum(p, 1)
            p16 = gl.convert_layout(p.to(dtype), p_operand)
            out_main, out_rest = wait_for_values(out_main, out_rest, REST)
            mbarrier.arrive(v_empty.index(v_stage), count=1)
            v_stage, v_phase = advance(v_stage, v_phase, STAGES)
            out_main, out_rest = times_rows(out_main, out_rest, shrink, REST)
        if Q_IN_REGISTERS < MAIN + REST:
            mbarrier.arrive(q_empty.index(own_q), count=1)
        mbarrier.wait(v_full.index(v_stage), v_phase)
        v = v_tiles.index(v_stage).reshape([KEYS, DIM])
        out_main, out_rest = add_values(p16, v, out_main, out_rest, MAIN, REST)
        if PACKED:
            # read anew: the loop has no registers for it
            block_row, q_from, queries_here, _, keys_here, first_seen, last_seen = block_of(
                schedule[0], row_block, length_q, length_k, low, high, BLOCK, PACKED
            )
            row = block_row + warpgroup * ROWS
            first, _, block_first, _ = tiles_of_warpgroup(
                block_row, row, queries_here, first_seen, last_seen, keys_here, ROWS, BLOCK, KEYS,
                MASK,
            )  # fmt: skip
        # the LSE is written while the last product runs
        if SUMS_BY_THREAD:
            total = gl.convert_layout(gl.sum(total, 1), s_rows)
        rows = row + gl.arange(0, ROWS, s_rows)
        lse_of_head = lse + instance.to(gl.int64) * length_q + q_from
        gl.store(lse_of_head + rows, top * LN2 + gl.log(total), mask=rows < queries_here)
        inverse = 1.0 / total
        if MASK == "band":
            inverse = gl.where(total == 0, 0.0, inverse)
        out_main, out_rest = wait_for_values(out_main, out_rest, REST)
        mbarrier.arrive(v_empty.index(v_stage), count=1)
        v_stage, v_phase = advance(v_stage, v_phase, STAGES)
        if MASK == "band":
            k_stage, k_phase, v_stage, v_phase = hand_back(
                keys, values, first - block_first, k_stage, k_phase, v_stage, v_phase, STAGES
            )
        out_main, out_rest = times_rows(out_main, out_rest, inverse, REST)
        batch = instance // heads
        head = instance - batch * heads
        first_row = q_from + row
        left = queries_here - row
        to = out
        if PACKED:
            to += head.to(gl.int64) * head_stride * 8 + first_row.to(gl.int64) * row_stride * 8
        tma.store_wait(0)
        store_part(
            out_main.to(dtype), out_tile, out_map, [batch, head, first_row, 0], to, row_stride,
            left, ROWS, MAIN, MAIN, PACKED,
        )  # fmt: skip
        if REST > 0:
            tma.store_wait(0)
            store_part(
                out_rest.to(dtype), out_tile, out_map, [batch, head, first_row, MAIN], to + MAIN,
                row_stride, left, ROWS, MAIN, REST, PACKED,
            )  # fmt: skip
    tma.store_wait(0)
