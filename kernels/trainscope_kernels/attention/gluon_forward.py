"""FlashAttention forward for Hopper in Gluon: one warp copies, two or three warpgroups multiply.

Persistent: one program an SM, which takes tile after tile of WARPGROUPS * 64 queries. The copying
warp runs ahead across tiles, so the next tile's Q, K and V arrive while this one ends.

Budget of an SM, 227 KB of shared memory and 65,536 registers:

    head_dim    64      64      96      128     192     256
                full    masked
    warpgroups  3       2       2       2       2       2       of 64 queries
    keys        128     128     128     128     64      64      of a tile, in two stages; short and
                                                                causal at 64: 64, in four
    Q           48 KB   16 KB   32 KB   32 KB   64 KB   64 KB   64 full: in two stages
    K           32 KB   32 KB   64 KB   64 KB   64 KB   64 KB
    V           32 KB   32 KB   64 KB   64 KB   64 KB   64 KB
    O           24 KB   16 KB   16 KB   32 KB   32 KB   32 KB   in two parts, see below
    shared     136 KB   96 KB  176 KB  192 KB  224 KB  224 KB
    registers  160     240     240     240     240     240      a consumer's; copying 24 or 32

    S           64      64      64      64      32      32      registers a thread
    P           32      32      32      32      16      16
    O           32      32      48      64      96      128
    Q           0       16      24      32      48      0 or 32

96 and 192 are tiles of 128 and 256 columns in shared memory: TMA fills what is past the head with
zeros, and nobody reads it. Two parts of columns (64 + 32, 128 + 64, 128 + 128) are multiplied.

Who waits for whom:

    ring     full: the consumer may read    empty: the producer may overwrite
    queries  TMA of 64 rows                 its warpgroup's first S of the tile is complete, or, Q
                                            or a part of it in shared memory, its last
    keys     TMA of a tile                  every warpgroup's S of it is complete
    values   TMA of a tile                  every warpgroup's P @ V of it is complete

A wgmma reads shared memory while it flies: nobody arrives on ``empty`` before the wait that covers
it. O has a buffer of its own, which TMA stores read: before writing it again a warpgroup waits for
its own last store (store_wait), which needs no barrier. A warpgroup that sees fewer tiles than the
others of its block gives the rest back unread, in order. gluon_forward_consumer.py is what a
consumer does with a tile.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from trainscope_kernels.attention.gluon_band import tiles_seen
from trainscope_kernels.attention.gluon_forward_consumer import consume
from trainscope_kernels.attention.gluon_pipeline import (
    advance,
    block_of,
    copy_in,
    head_and_block,
    init_ring,
    tile_after,
    tiles_of_program,
)

__all__ = ["attention_forward"]


@gluon.jit
def produce(
    q_map, k_map, v_map, queries, keys, values, schedule, length_k, low, high, row_blocks, heads,
    group, together,
    WARPGROUPS: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, STAGES: gl.constexpr,
    Q_STAGES: gl.constexpr, MASK: gl.constexpr, TABLE: gl.constexpr, PACKED: gl.constexpr,
):  # fmt: skip
    """The copying warp: for each tile Q of every warpgroup, then K and V from the last key down."""
    k_stage, k_phase = 0, 1
    v_stage, v_phase = 0, 1
    q_stage, q_phase = 0, 1
    turns, listed_at, tile = tiles_of_program(schedule, TABLE)
    for turn in range(turns):
        instance, row_block = head_and_block(tile, row_blocks, heads, together, PACKED)
        batch = instance // heads
        head = instance - batch * heads
        kv = head // group
        tile = tile_after(turn, tile, listed_at, TABLE)
        block_row, q_from, _, k_from, keys_here, first_seen, last_seen = block_of(
            schedule[0], row_block, 0, length_k, low, high, WARPGROUPS * ROWS, PACKED
        )
        for each in gl.static_range(WARPGROUPS):
            row = q_from + block_row + each * ROWS
            stage = q_stage * WARPGROUPS + each
            copy_in(q_map, [batch, head, row, 0], queries, stage, q_phase, 1)
        q_stage, q_phase = advance(q_stage, q_phase, Q_STAGES)
        first, end = tiles_seen(
            block_row, first_seen, last_seen, keys_here, WARPGROUPS * ROWS, KEYS, MASK
        )
        key = k_from + (end - 1) * KEYS
        k_stage, k_phase = copy_in(k_map, [batch, kv, key, 0], keys, k_stage, k_phase, STAGES)
        # K runs one tile ahead of V, as the consumers read them
        for _ in range(end - 1 - first):
            k_stage, k_phase = copy_in(
                k_map, [batch, kv, key - KEYS, 0], keys, k_stage, k_phase, STAGES
            )
            v_stage, v_phase = copy_in(v_map, [batch, kv, key, 0], values, v_stage, v_phase, STAGES)
            key -= KEYS
        v_stage, v_phase = copy_in(v_map, [batch, kv, key, 0], values, v_stage, v_phase, STAGES)


@gluon.jit(
    do_not_specialize=[
        "tiles", "length_q", "length_k", "low", "high", "head_stride", "row_stride", "row_blocks",
        "heads", "group", "together",
    ]
)  # fmt: skip
def attention_forward(
    q_map, k_map, v_map, out_map, out, lse, table, lists, tiles, length_q, length_k, low, high,
    head_stride, row_stride, row_blocks, heads, group, together, log2_scale, to_tanh,
    WARPGROUPS: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr,
    MAIN: gl.constexpr, REST: gl.constexpr, STAGES: gl.constexpr, Q_STAGES: gl.constexpr,
    MASK: gl.constexpr, CAPPED: gl.constexpr, TABLE: gl.constexpr, PACKED: gl.constexpr,
    Q_IN_REGISTERS: gl.constexpr, SUMS_BY_THREAD: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr, PRODUCER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Every program: set up the rings, then part into producer and consumers.

    *_map: tensor maps of (batch, heads, length, head_dim), in boxes of DIM columns, the output's
    of MAIN. MAIN + REST: head_dim. lse: (batch, heads, length_q), float32.
    table, lists: which program takes which tiles, see gluon_schedule; without TABLE any pointers.
    PACKED: the batch is one, of sequences, and table their blocks (gluon_packed), taken for
    ``together`` heads at a time. Where a box of out_map would reach into the next sequence, rows go
    to out, whose strides are given in eights. Otherwise out is any pointer.
    low, high, MASK: which keys a query sees, see gluon_band.
    log2_scale: what makes log2 units of the scores, or, CAPPED, of their tanh; must be positive.
    to_tanh: CAPPED, what makes of the scores what soft_tanh takes.
    """
    dtype: gl.constexpr = q_map.dtype
    bars: gl.constexpr = mbarrier.MBarrierLayout()
    q_tiles = gl.allocate_shared_memory(
        dtype, [Q_STAGES * WARPGROUPS, 1, 1, ROWS, DIM], q_map.layout
    )
    k_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, KEYS, DIM], k_map.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, KEYS, DIM], v_map.layout)
    out_tiles = gl.allocate_shared_memory(dtype, [WARPGROUPS, 1, 1, ROWS, MAIN], out_map.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [Q_STAGES * WARPGROUPS, 1], bars)
    q_empty = gl.allocate_shared_memory(gl.int64, [Q_STAGES * WARPGROUPS, 1], bars)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    init_ring(q_full, q_empty, Q_STAGES * WARPGROUPS, 1, 1)
    init_ring(k_full, k_empty, STAGES, 1, WARPGROUPS)
    init_ring(v_full, v_empty, STAGES, 1, WARPGROUPS)
    # the copies are made by another engine: it must see the barriers as they now are
    fence_async_shared()
    queries = (q_tiles, q_full, q_empty)
    keys = (k_tiles, k_full, k_empty)
    values = (v_tiles, v_full, v_empty)
    if PACKED:
        row_blocks = gl.load(table)
        tiles = row_blocks * heads
    schedule = (table, lists, tiles)
    # The arguments are written out in the calls: a tuple bound to a name loses its constexprs.
    # fmt: off
    if WARPGROUPS == 2:
        gl.warp_specialize([
            (consume, (out_map, out, lse, queries, keys, values, out_tiles, schedule, length_q,
                       length_k, low, high, head_stride, row_stride, row_blocks, heads, together,
                       log2_scale, to_tanh, 0, WARPGROUPS, ROWS, KEYS, DIM, MAIN, REST, STAGES,
                       Q_STAGES, MASK, CAPPED, TABLE, PACKED, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, out, lse, queries, keys, values, out_tiles, schedule, length_q,
                       length_k, low, high, head_stride, row_stride, row_blocks, heads, together,
                       log2_scale, to_tanh, 1, WARPGROUPS, ROWS, KEYS, DIM, MAIN, REST, STAGES,
                       Q_STAGES, MASK, CAPPED, TABLE, PACKED, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (produce, (q_map, k_map, v_map, queries, keys, values, schedule, length_k, low, high,
                       row_blocks, heads, group, together, WARPGROUPS, ROWS, KEYS, STAGES, Q_STAGES,
                       MASK, TABLE, PACKED)),
        ], [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS])
    else:
        gl.warp_specialize([
            (consume, (out_map, out, lse, queries, keys, values, out_tiles, schedule, length_q,
                       length_k, low, high, head_stride, row_stride, row_blocks, heads, together,
                       log2_scale, to_tanh, 0, WARPGROUPS, ROWS, KEYS, DIM, MAIN, REST, STAGES,
                       Q_STAGES, MASK, CAPPED, TABLE, PACKED, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, out, lse, queries, keys, values, out_tiles, schedule, length_q,
                       length_k, low, high, head_stride, row_stride, row_blocks, heads, together,
                       log2_scale, to_tanh, 1, WARPGROUPS, ROWS, KEYS, DIM, MAIN, REST, STAGES,
                       Q_STAGES, MASK, CAPPED, TABLE, PACKED, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (consume, (out_map, out, lse, queries, keys, values, out_tiles, schedule, length_q,
                       length_k, low, high, head_stride, row_stride, row_blocks, heads, together,
                       log2_scale, to_tanh, 2, WARPGROUPS, ROWS, KEYS, DIM, MAIN, REST, STAGES,
                       Q_STAGES, MASK, CAPPED, TABLE, PACKED, Q_IN_REGISTERS, SUMS_BY_THREAD)),
            (produce, (q_map, k_map, v_map, queries, keys, values, schedule, length_k, low, high,
                       row_blocks, heads, group, together, WARPGROUPS, ROWS, KEYS, STAGES, Q_STAGES,
                       MASK, TABLE, PACKED)),
        ], [4, 4, 1], [CONSUMER_REGISTERS, CONSUMER_REGISTERS, PRODUCER_REGISTERS])
