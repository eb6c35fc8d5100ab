"""FlashAttention forward for Hopper in Gluon: one warp copies, two or three warpgroups multiply.

Persistent: one program an SM, which takes tile after tile of WARPGROUPS * 64 queries. The copying
warp runs ahead across tiles, so the next tile's Q, K and V arrive while this one ends.

Budget of an SM, 227 KB of shared memory and 65,536 registers; tiles are 64 queries, 128 keys:

    head_dim  warpgroups  Q       K, V (2 stages)  O       shared  registers a thread
    128       2           32 KB   64 + 64 KB       32 KB   192 KB  240, 240, copying 24
    64        3           24 KB   32 + 32 KB       24 KB   112 KB  160, 160, 160, copying 32

A consumer holds S (64 registers a thread), P (32), O (DIM / 2) and at DIM 128 Q (32).

Who waits for whom:

    ring     full: the consumer may read    empty: the producer may overwrite
    queries  TMA of 64 rows                 its warpgroup has loaded Q into registers, or (Q in
                                            shared memory) its last S of the tile is complete
    keys     TMA of a tile                  every warpgroup's S of it is complete
    values   TMA of a tile                  every warpgroup's P @ V of it is complete

A wgmma reads shared memory while it flies: nobody arrives on ``empty`` before the wait that covers
it. O has a buffer of its own, which TMA stores read: before writing it again a warpgroup waits for
its own store of the last tile (store_wait), which needs no barrier.

Order in a consumer, tile i of the keys: S(i) = Q K(i)^T is issued before P(i-1) V(i-1), so that the
exponentials of S(i) run while the tensor cores work on P(i-1) V(i-1). Keys go from the last tile to
the first, so the only tile that needs a mask (the ragged end, or the diagonal) stands before the
loop and the loop itself has none.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

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

from trainscope_kernels.attention.gluon_mask import columns_before
from trainscope_kernels.attention.gluon_pipeline import (
    advance,
    copy_in,
    init_ring,
    tile_after,
    tiles_of_program,
)

__all__ = ["attention_forward"]

LN2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def key_tiles(row_block, length, QUERIES: gl.constexpr, KEYS: gl.constexpr, CAUSAL: gl.constexpr):
    """Tiles of keys that a block of QUERIES rows sees."""
    end = length
    if CAUSAL:
        end = gl.minimum((row_block + 1) * QUERIES, length)
    return gl.cdiv(end, KEYS)


@gluon.jit
def sums_by_thread(p, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """Row sums over the columns that each thread holds; four threads share a row."""
    return gl.sum(gl.sum(p.reshape([ROWS, KEYS // 8, 4, 2]), 3), 1)


@gluon.jit
def produce(
    q_map, k_map, v_map, queries, keys, values, schedule, length, row_blocks, heads, group,
    WARPGROUPS: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, TABLE: gl.constexpr,
):  # fmt: skip
    """The copying warp: for each tile Q of every warpgroup, then K and V from the last key down."""
    k_stage, k_phase = 0, 1
    v_stage, v_phase = 0, 1
    q_phase = 1
    turns, listed_at, tile = tiles_of_program(schedule, TABLE)
    for turn in range(turns):
        instance = tile // row_blocks
        row_block = tile - instance * row_blocks
        batch = instance // heads
        head = instance - batch * heads
        kv = head // group
        tile = tile_after(turn, tile, listed_at, TABLE)
        count = key_tiles(row_block, length, WARPGROUPS * ROWS, KEYS, CAUSAL)
        for each in gl.static_range(WARPGROUPS):
            row = row_block * (WARPGROUPS * ROWS) + each * ROWS
            copy_in(q_map, [batch, head, row, 0], queries, each, q_phase, WARPGROUPS)
        q_phase = q_phase ^ 1
        key = (count - 1) * KEYS
        k_stage, k_phase = copy_in(k_map, [batch, kv, key, 0], keys, k_stage, k_phase, STAGES)
        # K runs one tile ahead of V, as the consumers read them
        for _ in range(count - 1):
            k_stage, k_phase = copy_in(
                k_map, [batch, kv, key - KEYS, 0], keys, k_stage, k_phase, STAGES
            )
            v_stage, v_phase = copy_in(v_map, [batch, kv, key, 0], values, v_stage, v_phase, STAGES)
            key -= KEYS
        v_stage, v_phase = copy_in(v_map, [batch, kv, key, 0], values, v_stage, v_phase, STAGES)


@gluon.jit
def consume(
    out_map, lse, queries, keys, values, out_tiles, schedule, length, row_blocks, heads,
    log2_scale,
    warpgroup: gl.constexpr, WARPGROUPS: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr,
    DIM: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr,
    TABLE: gl.constexpr, Q_IN_REGISTERS: gl.constexpr, SUMS_BY_THREAD: gl.constexpr,
):  # fmt: skip
    """A warpgroup: the ROWS queries of each tile that are its own."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    s_rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    q_operand: gl.constexpr = gl.DotOperandLayout(0, s_layout, 2)
    p_operand: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    q_tiles, q_full, q_empty = queries
    k_tiles, k_full, k_empty = keys
    v_tiles, v_full, v_empty = values
    dtype: gl.constexpr = q_tiles.dtype
    q_shared = q_tiles.index(warpgroup).reshape([ROWS, DIM])
    out_tile = out_tiles.index(warpgroup)
    zeros = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
    k_stage, k_phase = 0, 0
    v_stage, v_phase = 0, 0
    q_phase = 0
    turns, listed_at, tile = tiles_of_program(schedule, TABLE)
    for turn in range(turns):
        instance = tile // row_blocks
        row_block = tile - instance * row_blocks
        tile = tile_after(turn, tile, listed_at, TABLE)
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
            # tiles right of this warpgroup's own diagonal are for the others: only hand them back
            unseen = count - gl.minimum(count, (row + ROWS + KEYS - 1) // KEYS)
            for _ in range(unseen):
                mbarrier.wait(k_full.index(k_stage), k_phase)
                mbarrier.arrive(k_empty.index(k_stage), count=1)
                k_stage, k_phase = advance(k_stage, k_phase, STAGES)
                mbarrier.wait(v_full.index(v_stage), v_phase)
                mbarrier.arrive(v_empty.index(v_stage), count=1)
                v_stage, v_phase = advance(v_stage, v_phase, STAGES)
            count -= unseen
        # the last tile of keys, the only one with a mask
        mbarrier.wait(k_full.index(k_stage), k_phase)
        k = k_tiles.index(k_stage).reshape([KEYS, DIM]).permute((1, 0))
        s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(k_stage), count=1)
        k_stage, k_phase = advance(k_stage, k_phase, STAGES)
        first_key = (count - 1) * KEYS
        if CAUSAL:
            key = first_key + gl.arange(0, KEYS, gl.SliceLayout(0, s_layout))
            query = row + gl.arange(0, ROWS, s_rows)
            s = gl.where(query[:, None] >= key[None, :], s, float("-inf"))
        elif RAGGED:
            seen = columns_before(s, length - first_key, False, ROWS, KEYS)
            s = gl.where(seen, s, float("-inf"))
        top = gl.max(s, 1) * log2_scale
        p = gl.exp2(s * log2_scale - top[:, None])
        if SUMS_BY_THREAD:
            total = sums_by_thread(p, ROWS, KEYS)
        else:
            total = gl.sum(p, 1)
        p16 = gl.convert_layout(p.to(dtype), p_operand)
        acc = gl.zeros([ROWS, DIM], gl.float32, o_layout)
        for _ in range(count - 1):
            mbarrier.wait(k_full.index(k_stage), k_phase)
            k = k_tiles.index(k_stage).reshape([KEYS, DIM]).permute((1, 0))
            s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(v_stage), v_phase)
            v = v_tiles.index(v_stage).reshape([KEYS, DIM])
            acc = warpgroup_mma(p16, v, acc, is_async=True)
            # wgmmas end in order: one left in flight means that S is there and P @ V may not be
            s = warpgroup_mma_wait(1, deps=(s,))
            mbarrier.arrive(k_empty.index(k_stage), count=1)
            k_stage, k_phase = advance(k_stage, k_phase, STAGES)
            new_top = gl.maximum(top, gl.max(s, 1) * log2_scale)
            p = gl.exp2(s * log2_scale - new_top[:, None])
            shrink = gl.exp2(top - new_top)
            top = new_top
            if SUMS_BY_THREAD:
                factor = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))
                total = total * factor[:, None] + sums_by_thread(p, ROWS, KEYS)
            else:
                total = total * shrink + gl.sum(p, 1)
            p16 = gl.convert_layout(p.to(dtype), p_operand)
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(v_empty.index(v_stage), count=1)
            v_stage, v_phase = advance(v_stage, v_phase, STAGES)
            acc = acc * gl.convert_layout(shrink, o_rows)[:, None]
        if not Q_IN_REGISTERS:
            mbarrier.arrive(q_empty.index(warpgroup), count=1)
        mbarrier.wait(v_full.index(v_stage), v_phase)
        v = v_tiles.index(v_stage).reshape([KEYS, DIM])
        acc = warpgroup_mma(p16, v, acc, is_async=True)
        # the LSE is written while the last product runs
        if SUMS_BY_THREAD:
            total = gl.convert_layout(gl.sum(total, 1), s_rows)
        rows = row + gl.arange(0, ROWS, s_rows)
        lse_of_head = lse + instance.to(gl.int64) * length
        gl.store(lse_of_head + rows, top * LN2 + gl.log(total), mask=rows < length)
        inverse = 1.0 / total
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(v_empty.index(v_stage), count=1)
        v_stage, v_phase = advance(v_stage, v_phase, STAGES)
        acc = acc * gl.convert_layout(inverse, o_rows)[:, None]
        tma.store_wait(0)
        out_tile.reshape([ROWS, DIM]).store(acc.to(dtype))
        fence_async_shared()
        # rows past the end are outside the tensor map, and TMA writes nothing there
        batch = instance // heads
        tma.async_copy_shared_to_global(
            out_map, [batch, instance - batch * heads, row, 0], out_tile
        )
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["tiles", "length", "row_blocks", "heads", "group"])
def attention_forward(
    q_map, k_map, v_map, out_map, lse, table, lists, tiles, length, row_blocks, heads, group,
    log2_scale,
    WARPGROUPS: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr, TABLE: gl.constexpr,
    Q_IN_REGISTERS: gl.constexpr, SUMS_BY_THREAD: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr, PRODUCER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Every program: set up the rings, then part into producer and consumers.

    *_map: tensor maps of (batch, heads, length, DIM). lse: (batch, heads, length), float32.
    table, lists: which program takes which tiles, see gluon_schedule; without TABLE any pointers.
    log2_scale: the scale of the scores times log2(e); must be positive.
    """
    dtype: gl.constexpr = q_map.dtype
    bars: gl.constexpr = mbarrier.MBarrierLayout()
    q_tiles = gl.allocate_shared_memory(dtype, [WARPGROUPS, 1, 1, ROWS, DIM], q_map.layout)
    k_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, KEYS, DIM], k_map.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, KEYS, DIM], v_map.layout)
    out_tiles = gl.allocate_shared_memory(dtype, [WARPGROUPS, 1, 1, ROWS, DIM], out_map.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [WARPGROUPS, 1], bars)
    q_empty = gl.allocate_shared_memory(gl.int64, [WARPGROUPS, 1], bars)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    init_ring(q_full, q_empty, WARPGROUPS, 1, 1)
    init_ring(k_full, k_empty, STAGES, 1, WARPGROUPS)
    init_ring(v_full, v_empty, STAGES, 1, WARPGROUPS)
    # the copies are made by another engine: it must see the barriers as they now are
    fence_async_shared()
    queries = (q_tiles, q_full, q_empty)
    keys = (k_tiles, k_full, k_empty)
    values = (v_tiles, v_full, v_empty)
    schedule = (table, lists, tiles)
    # The arguments are written out in the calls: a tuple bound to a name loses its constexprs.
    # fmt: off
    if WARPGROUPS == 2:
        gl.warp_specialize([
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length,
                       row_blocks, heads, log2_scale, 0, WARPGROUPS, ROWS, KEYS, DIM, STAGES,
                       CAUSAL, RAGGED, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length,
                       row_blocks, heads, log2_scale, 1, WARPGROUPS, ROWS, KEYS, DIM, STAGES,
                       CAUSAL, RAGGED, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (produce, (q_map, k_map, v_map, queries, keys, values, schedule, length, row_blocks,
                       heads, group, WARPGROUPS, ROWS, KEYS, STAGES, CAUSAL, TABLE)),
        ], [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS])
    else:
        gl.warp_specialize([
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length,
                       row_blocks, heads, log2_scale, 0, WARPGROUPS, ROWS, KEYS, DIM, STAGES,
                       CAUSAL, RAGGED, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length,
                       row_blocks, heads, log2_scale, 1, WARPGROUPS, ROWS, KEYS, DIM, STAGES,
                       CAUSAL, RAGGED, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, lse, queries, keys, values, out_tiles, schedule, length,
                       row_blocks, heads, log2_scale, 2, WARPGROUPS, ROWS, KEYS, DIM, STAGES,
                       CAUSAL, RAGGED, TABLE, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (produce, (q_map, k_map, v_map, queries, keys, values, schedule, length, row_blocks,
                       heads, group, WARPGROUPS, ROWS, KEYS, STAGES, CAUSAL, TABLE)),
        ], [4, 4, 1], [CONSUMER_REGISTERS, CONSUMER_REGISTERS, PRODUCER_REGISTERS])
