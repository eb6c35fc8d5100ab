"""FlashAttention forward for Hopper in Gluon."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# (what @gluon.jit adds to a function is not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from trainscope_kernels.attention.gluon_pipeline import (
    advance,
    copy_in,
    init_ring,
    tile_at,
    tiles_of_program,
)

__all__ = ["attention_forward"]

LN2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def row_sums(p, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """Sums of the columns that one thread holds, 4 a row: no shuffle inside the loop."""
    return gl.sum(gl.sum(p.reshape([ROWS, KEYS // 8, 4, 2]), 3), 1)


@gluon.jit
def key_tiles(row_block, length, ROWS: gl.constexpr, KEYS: gl.constexpr, CAUSAL: gl.constexpr):
    """Tiles of keys that a block of ROWS queries sees."""
    end = length
    if CAUSAL:
        end = gl.minimum((row_block + 1) * ROWS, length)
    return gl.cdiv(end, KEYS)


@gluon.jit
def produce(
    q_map,
    k_map,
    v_map,
    queries,
    keys,
    values,
    schedule,
    length,
    row_blocks,
    WARPGROUPS: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLE: gl.constexpr,
):
    """The one warp that copies: Q of each warpgroup, then K and V from the last tile down."""
    k_stage = 0
    k_phase = 1
    v_stage = 0
    v_phase = 1
    q_phase = 1
    turns, listed_at = tiles_of_program(schedule, TABLE)
    listed = gl.load(listed_at)
    for turn in range(turns):
        row_block, head = tile_at(turn, listed, row_blocks, TABLE)
        listed = gl.load(listed_at + turn + 1)
        count = key_tiles(row_block, length, WARPGROUPS * ROWS, KEYS, CAUSAL)
        for each in gl.static_range(WARPGROUPS):
            row = row_block * (WARPGROUPS * ROWS) + each * ROWS
            copy_in(q_map, [head, row, 0], queries, each, q_phase, WARPGROUPS)
        q_phase = q_phase ^ 1
        key = (count - 1) * KEYS
        k_stage, k_phase = copy_in(k_map, [head, key, 0], keys, k_stage, k_phase, STAGES)
        # K runs one tile ahead of V, as the consumers read them
        for _ in range(count - 1):
            k_stage, k_phase = copy_in(k_map, [head, key - KEYS, 0], keys, k_stage, k_phase, STAGES)
            v_stage, v_phase = copy_in(v_map, [head, key, 0], values, v_stage, v_phase, STAGES)
            key -= KEYS
        v_stage, v_phase = copy_in(v_map, [head, key, 0], values, v_stage, v_phase, STAGES)


@gluon.jit
def consume(
    out_map,
    lse,
    queries,
    keys,
    values,
    out_tiles,
    schedule,
    length,
    row_blocks,
    scale,
    warpgroup: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    DIM: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLE: gl.constexpr,
    Q_IN_REGISTERS: gl.constexpr,
    SUMS_BY_THREAD: gl.constexpr,
):
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    s_rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    p_operand: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    q_operand: gl.constexpr = gl.DotOperandLayout(0, s_layout, 2)
    q_tiles, q_full, q_empty = queries
    k_tiles, k_full, k_empty = keys
    v_tiles, v_full, v_empty = values
    q_shared = q_tiles.index(warpgroup).reshape([ROWS, DIM])
    out_tile = out_tiles.index(warpgroup)
    zeros = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
    k_stage = 0
    k_phase = 0
    v_stage = 0
    v_phase = 0
    q_phase = 0
    turns, listed_at = tiles_of_program(schedule, TABLE)
    listed = gl.load(listed_at)
    for turn in range(turns):
        row_block, head = tile_at(turn, listed, row_blocks, TABLE)
        listed = gl.load(listed_at + turn + 1)
        row = row_block * (WARPGROUPS * ROWS) + warpgroup * ROWS
        count = key_tiles(row_block, length, WARPGROUPS * ROWS, KEYS, CAUSAL)
        mbarrier.wait(q_full.index(warpgroup), q_phase)
        q_phase = q_phase ^ 1
        if Q_IN_REGISTERS:
            q = q_shared.load(q_operand)
            mbarrier.arrive(q_empty.index(warpgroup), count=1)
        else:
            q = q_shared
        if CAUSAL and WARPGROUPS * ROWS > KEYS:
            unseen = count - gl.minimum(count, (row + ROWS + KEYS - 1) // KEYS)
            for _ in range(unseen):
                mbarrier.wait(k_full.index(k_stage), k_phase)
                mbarrier.arrive(k_empty.index(k_stage), count=1)
                k_stage, k_phase = advance(k_stage, k_phase, STAGES)
                mbarrier.wait(v_full.index(v_stage), v_phase)
                mbarrier.arrive(v_empty.index(v_stage), count=1)
                v_stage, v_phase = advance(v_stage, v_phase, STAGES)
            count -= unseen
        mbarrier.wait(k_full.index(k_stage), k_phase)
        k = k_tiles.index(k_stage).reshape([KEYS, DIM]).permute((1, 0))
        s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(k_stage), count=1)
        k_stage, k_phase = advance(k_stage, k_phase, STAGES)
        key = (count - 1) * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, s_layout))
        if CAUSAL:
            query = row + gl.arange(0, ROWS, s_rows)
            s = gl.where(query[:, None] >= key[None, :], s, float("-inf"))
        else:
            s = gl.where((key < length)[None, :], s, float("-inf"))
        top = gl.max(s, 1) * scale
        p = gl.exp2(s * scale - top[:, None])
        if SUMS_BY_THREAD:
            total = row_sums(p, ROWS, KEYS)
        else:
            total = gl.sum(p, 1)
        p16 = gl.convert_layout(p.to(gl.bfloat16), p_operand)
        acc = gl.zeros([ROWS, DIM], gl.float32, o_layout)
        for _ in range(count - 1):
            mbarrier.wait(k_full.index(k_stage), k_phase)
            k = k_tiles.index(k_stage).reshape([KEYS, DIM]).permute((1, 0))
            s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(v_stage), v_phase)
            v = v_tiles.index(v_stage).reshape([KEYS, DIM])
            acc = warpgroup_mma(p16, v, acc, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s,))
            mbarrier.arrive(k_empty.index(k_stage), count=1)
            k_stage, k_phase = advance(k_stage, k_phase, STAGES)
            new_top = gl.maximum(top, gl.max(s, 1) * scale)
            p = gl.exp2(s * scale - new_top[:, None])
            shrink = gl.exp2(top - new_top)
            top = new_top
            if SUMS_BY_THREAD:
                by_thread = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))
                total = total * by_thread[:, None] + row_sums(p, ROWS, KEYS)
            else:
                total = total * shrink + gl.sum(p, 1)
            p16 = gl.convert_layout(p.to(gl.bfloat16), p_operand)
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(v_empty.index(v_stage), count=1)
            v_stage, v_phase = advance(v_stage, v_phase, STAGES)
            acc = acc * gl.convert_layout(shrink, o_rows)[:, None]
        if not Q_IN_REGISTERS:
            mbarrier.arrive(q_empty.index(warpgroup), count=1)
        mbarrier.wait(v_full.index(v_stage), v_phase)
        v = v_tiles.index(v_stage).reshape([KEYS, DIM])
        acc = warpgroup_mma(p16, v, acc, is_async=True)
        if SUMS_BY_THREAD:
            total = gl.convert_layout(gl.sum(total, 1), s_rows)
        rows = row + gl.arange(0, ROWS, s_rows)
        lse_of_head = lse + head.to(gl.int64) * length
        gl.store(lse_of_head + rows, top * LN2 + gl.log(total), mask=rows < length)
        inverse = 1.0 / total
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(v_empty.index(v_stage), count=1)
        v_stage, v_phase = advance(v_stage, v_phase, STAGES)
        acc = acc * gl.convert_layout(inverse, o_rows)[:, None]
        tma.store_wait(0)
        out_tile.reshape([ROWS, DIM]).store(acc.to(gl.bfloat16))
        fence_async_shared()
        tma.async_copy_shared_to_global(out_map, [head, row, 0], out_tile)
    tma.store_wait(0)


@gluon.jit
def attention_forward(
    q_map,
    k_map,
    v_map,
    out_map,
    lse,
    table,
    lists,
    tiles,
    length,
    row_blocks,
    scale,
    WARPGROUPS: gl.constexpr,
    ROWS: gl.constexpr,
    KEYS: gl.constexpr,
    DIM: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    TABLE: gl.constexpr,
    Q_IN_REGISTERS: gl.constexpr,
    SUMS_BY_THREAD: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr,
):
    q_tiles = gl.allocate_shared_memory(gl.bfloat16, [WARPGROUPS, 1, ROWS, DIM], q_map.layout)
    k_tiles = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, KEYS, DIM], k_map.layout)
    v_tiles = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, KEYS, DIM], v_map.layout)
    out_tiles = gl.allocate_shared_memory(gl.bfloat16, [WARPGROUPS, 1, ROWS, DIM], out_map.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [WARPGROUPS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [WARPGROUPS, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    queries = (q_tiles, q_full, q_empty)
    keys = (k_tiles, k_full, k_empty)
    values = (v_tiles, v_full, v_empty)
    schedule = (table, lists, tiles)
    init_ring(q_full, q_empty, WARPGROUPS, 1, 1)
    init_ring(k_full, k_empty, STAGES, 1, WARPGROUPS)
    init_ring(v_full, v_empty, STAGES, 1, WARPGROUPS)
    fence_async_shared()
    # fmt: off
    if WARPGROUPS == 2:
        gl.warp_specialize([
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length, row_blocks, scale, 0,
                       WARPGROUPS, ROWS, KEYS, DIM, STAGES, CAUSAL, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length, row_blocks, scale, 1,
                       WARPGROUPS, ROWS, KEYS, DIM, STAGES, CAUSAL, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (produce, (q_map, k_map, v_map, queries, keys, values, schedule, length, row_blocks,
                       WARPGROUPS, ROWS, KEYS, STAGES, CAUSAL, TABLE)),
        ], [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS])
    else:
        gl.warp_specialize([
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length, row_blocks, scale, 0,
                       WARPGROUPS, ROWS, KEYS, DIM, STAGES, CAUSAL, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length, row_blocks, scale, 1,
                       WARPGROUPS, ROWS, KEYS, DIM, STAGES, CAUSAL, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length, row_blocks, scale, 2,
                       WARPGROUPS, ROWS, KEYS, DIM, STAGES, CAUSAL, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (produce, (q_map, k_map, v_map, queries, keys, values, schedule, length, row_blocks,
                       WARPGROUPS, ROWS, KEYS, STAGES, CAUSAL, TABLE)),
        ], [4, 4, 1], [CONSUMER_REGISTERS, CONSUMER_REGISTERS, PRODUCER_REGISTERS])
