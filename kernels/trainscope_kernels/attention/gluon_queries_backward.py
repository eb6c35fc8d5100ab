"""dQ by itself, for Hopper in Gluon: 128 queries a program, summed in one order, with no atomics.

Of the deterministic backward the second half: gluon_backward without its dQ makes dK and dV. Both
compute S and dP, so that seven products are made where five are enough. Of wide heads it is the
only way, see gluon_wide_backward.

Two warpgroups keep 64 queries each, with their dO, and go over all keys that the 128 see; one warp
copies. A step is KEYS keys: S = Q K^T and dP = dO V^T, then dQ += dS K, with dS a register operand.
Here queries are rows, so the row terms (gluon_row_terms) are two registers each.

Budget of an SM: 227 KB of shared memory, 65,536 registers (240, 240 and 24 a thread)

    head_dim  keys a step  Q, dO        K (2 stages)  V (stages)  shared
    256        64          64 + 64 KB   64 KB         32 KB (1)   224 KB
    128       128          32 + 32 KB   64 KB         64 KB (2)   192 KB
    64        128          16 + 16 KB   32 KB         32 KB (2)    96 KB

A consumer holds dQ (DIM / 2 registers a thread), S and dP (KEYS / 2 each).

Who waits for whom:

    barrier     full: consumers may read           empty: the producer may overwrite
    own_full    TMA of 64 rows of Q and of dO      never: they stay, until dQ is put where Q was,
                                                   by the one warpgroup that reads it
    keys        TMA of a tile                      both warpgroups' dQ of it is complete
    values      TMA of a tile                      both warpgroups' dP of it is complete
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
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

from trainscope_kernels.attention.gluon_backward_mask import hide_columns
from trainscope_kernels.attention.gluon_backward_packed import empty_rows, packed_block, put_rows
from trainscope_kernels.attention.gluon_band import tiles_seen
from trainscope_kernels.attention.gluon_mask import soft_tanh
from trainscope_kernels.attention.gluon_pipeline import advance, copy_in, init_ring

__all__ = ["attention_queries_backward"]


@gluon.jit
def produce(
    q_map, k_map, v_map, grad_map, q_tiles, grad_tiles, own_full, keys_ring, values_ring, batch,
    head, key_head, q_row, k_from, first, end,
    ROWS: gl.constexpr, KEYS: gl.constexpr, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr,
):  # fmt: skip
    """The copying warp: Q and dO of both warpgroups once, then K and V tile by tile."""
    for warpgroup in gl.static_range(2):
        full = own_full.index(warpgroup)
        place = [batch, head, q_row + warpgroup * ROWS, 0]
        mbarrier.expect(full, q_map.block_type.nbytes + grad_map.block_type.nbytes)
        tma.async_copy_global_to_shared(q_map, place, full, q_tiles.index(warpgroup))
        tma.async_copy_global_to_shared(grad_map, place, full, grad_tiles.index(warpgroup))
    k_stage, k_phase = 0, 1
    v_stage, v_phase = 0, 1
    for step in range(first, end):
        place = [batch, key_head, k_from + step * KEYS, 0]
        k_stage, k_phase = copy_in(k_map, place, keys_ring, k_stage, k_phase, K_STAGES)
        v_stage, v_phase = copy_in(v_map, place, values_ring, v_stage, v_phase, V_STAGES)


@gluon.jit
def consume(
    dq_map, dq_to, head_stride, row_stride, terms, q_tiles, grad_tiles, own_full, keys_ring,
    values_ring, batch, head, instance, row, q_from, queries, padded, keys, low, high, first, end,
    scale, log2_scale, tanh_scale,
    warpgroup: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, PACKED: gl.constexpr,
    ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr, COLUMNS: gl.constexpr,
    K_STAGES: gl.constexpr, V_STAGES: gl.constexpr,
):  # fmt: skip
    """A warpgroup: dQ of its own ROWS queries."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    ds_operand: gl.constexpr = gl.DotOperandLayout(0, dq_layout, 2)
    k_tiles, k_full, k_empty = keys_ring
    v_tiles, v_full, v_empty = values_ring
    dtype: gl.constexpr = q_tiles.dtype
    own = row + warpgroup * ROWS
    q_tile = q_tiles.index(warpgroup)
    no_s = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
    dq = gl.zeros([ROWS, DIM], gl.float32, dq_layout)
    terms += instance.to(gl.int64) * (2 * padded) + q_from + own
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))
    # a program has 128 queries, and the terms of a head are a whole number of 64 long
    within = own + rows < queries
    lse_term = gl.load(terms + rows, within, float("-inf"))[:, None]
    if not CAPPED:
        lse_term = lse_term * log2_scale
    delta_term = gl.load(terms + padded + rows, within, 0.0)[:, None]
    k_stage, k_phase = 0, 0
    v_stage, v_phase = 0, 0
    mbarrier.wait(own_full.index(warpgroup), 0)
    for step in range(first, end):
        key = step * KEYS
        mbarrier.wait(k_full.index(k_stage), k_phase)
        k = k_tiles.index(k_stage).reshape([KEYS, DIM])
        if DIM > 128:
            # where these stand is worked out each step: kept, it is more registers than there are
            now = warpgroup + (step >> 30)
            q = q_tiles.index(now).reshape([ROWS, DIM])
            grad = grad_tiles.index(now).reshape([ROWS, DIM])
            v = v_tiles.index(v_stage + (step >> 30)).reshape([KEYS, DIM])
        else:
            q = q_tile.reshape([ROWS, DIM])
            grad = grad_tiles.index(warpgroup).reshape([ROWS, DIM])
            v = v_tiles.index(v_stage).reshape([KEYS, DIM])
        if PACKED:
            mbarrier.wait(v_full.index(v_stage), v_phase)
            empty_rows(k, keys - key, KEYS, DIM)
            empty_rows(v, keys - key, KEYS, DIM)
        s = warpgroup_mma(q, k.permute((1, 0)), no_s, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(v_stage), v_phase)
        dp = warpgroup_mma(grad, v.permute((1, 0)), no_s, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, deps=(s,))
        # while dP is on its way
        if CAPPED:
            capped = soft_tanh(s * tanh_scale)
            p = gl.exp2(capped * log2_scale + lse_term)
            # the slope of the cap joins the factor that dP meets
            p = p * (1.0 - capped * capped)
        else:
            p = gl.exp2(s * log2_scale + lse_term)
        p = hide_columns(p, own, key, keys, low, high, ROWS, KEYS, MASK)
        dp = warpgroup_mma_wait(0, deps=(dp,))
        mbarrier.arrive(v_empty.index(v_stage), count=1)
        ds = gl.convert_layout((p * (dp + delta_term)).to(dtype), ds_operand)
        dq = warpgroup_mma(ds, k, dq, is_async=True)
        dq = warpgroup_mma_wait(0, deps=(dq,))
        mbarrier.arrive(k_empty.index(k_stage), count=1)
        k_stage, k_phase = advance(k_stage, k_phase, K_STAGES)
        v_stage, v_phase = advance(v_stage, v_phase, V_STAGES)
    own_row = q_from + own
    dq_to += head.to(gl.int64) * head_stride * 8 + own_row.to(gl.int64) * row_stride * 8
    put_rows(
        (dq * scale).to(dtype), q_tile.reshape([ROWS, DIM]), q_tile, dq_map,
        [batch, head, own_row, 0], dq_to, row_stride, queries - own, ROWS, COLUMNS, PACKED,
    )  # fmt: skip
    tma.store_wait(0)


@gluon.jit(
    do_not_specialize=[
        "head_stride", "row_stride", "keys", "row_blocks", "padded", "heads", "group", "low",
        "high", "section",
    ]
)  # fmt: skip
def attention_queries_backward(
    q_map, k_map, v_map, grad_map, dq_map, dq, terms, records, head_stride, row_stride, keys,
    row_blocks, padded, heads, group, low, high, section, scale, log2_scale, tanh_scale,
    MASK: gl.constexpr, CAPPED: gl.constexpr, PACKED: gl.constexpr, RECORD: gl.constexpr,
    ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr, COLUMNS: gl.constexpr,
    K_STAGES: gl.constexpr, V_STAGES: gl.constexpr,
):  # fmt: skip
    """Every program: set up the rings, pick a row block, part into producer and consumers.

    *_map: tensor maps of (batch, heads, length, DIM); terms: see gluon_row_terms, ``padded`` rows
    of a head. row_blocks: of 2 * ROWS queries. group: query heads of a key head. low, high, MASK:
    see gluon_backward_mask. section: with a band, heads that run together, a divisor of batch *
    heads. log2_scale, tanh_scale, CAPPED: as in gluon_backward. PACKED, records, dq and its
    strides, COLUMNS: as in gluon_wide_backward.
    """
    dtype: gl.constexpr = q_map.dtype
    bars: gl.constexpr = mbarrier.MBarrierLayout()
    q_tiles = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, DIM], q_map.layout)
    grad_tiles = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, DIM], grad_map.layout)
    k_tiles = gl.allocate_shared_memory(dtype, [K_STAGES, 1, 1, KEYS, DIM], k_map.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [V_STAGES, 1, 1, KEYS, DIM], v_map.layout)
    own_full = gl.allocate_shared_memory(gl.int64, [2, 1], bars)
    k_full = gl.allocate_shared_memory(gl.int64, [K_STAGES, 1], bars)
    k_empty = gl.allocate_shared_memory(gl.int64, [K_STAGES, 1], bars)
    v_full = gl.allocate_shared_memory(gl.int64, [V_STAGES, 1], bars)
    v_empty = gl.allocate_shared_memory(gl.int64, [V_STAGES, 1], bars)
    mbarrier.init(own_full.index(0), count=1)
    mbarrier.init(own_full.index(1), count=1)
    init_ring(k_full, k_empty, K_STAGES, 1, 2)
    init_ring(v_full, v_empty, V_STAGES, 1, 2)
    fence_async_shared()
    keys_ring = (k_tiles, k_full, k_empty)
    values_ring = (v_tiles, v_full, v_empty)
    program = gl.program_id(0)
    if PACKED:
        head, row, q_from, queries, k_from, keys, low, high, live = packed_block(
            records, heads, RECORD
        )
        batch = 0
        instance = head
        first, end = tiles_seen(row, low, high, keys, 2 * ROWS, KEYS, "band")
        end = gl.where(live, end, first)
    else:
        if MASK == "none" or MASK == "end":
            instance = program // row_blocks
            row_block = program - instance * row_blocks
            first = 0
            end = gl.cdiv(keys, KEYS)
        else:
            # within a section the last queries of all heads first: they see the most keys
            in_section = program % (section * row_blocks)
            instance = program // (section * row_blocks) * section + in_section % section
            row_block = row_blocks - 1 - in_section // section
            # queries that see no key take one step, all of it hidden: it writes their zeros
            block_row = row_block * (2 * ROWS)
            first, end = tiles_seen(block_row, low, high, keys, 2 * ROWS, KEYS, "band")
        row = row_block * (2 * ROWS)
        q_from = 0
        queries = padded
        k_from = 0
        batch = instance // heads
        head = instance - batch * heads
    # The arguments are written out in the calls: a tuple bound to a name loses its constexprs.
    # fmt: off
    gl.warp_specialize([
        (consume, (dq_map, dq, head_stride, row_stride, terms, q_tiles, grad_tiles, own_full,
                   keys_ring, values_ring, batch, head, instance, row, q_from, queries, padded,
                   keys, low, high, first, end, scale, log2_scale, tanh_scale, 0, MASK, CAPPED,
                   PACKED, ROWS, KEYS, DIM, COLUMNS, K_STAGES, V_STAGES)),
        (consume, (dq_map, dq, head_stride, row_stride, terms, q_tiles, grad_tiles, own_full,
                   keys_ring, values_ring, batch, head, instance, row, q_from, queries, padded,
                   keys, low, high, first, end, scale, log2_scale, tanh_scale, 1, MASK, CAPPED,
                   PACKED, ROWS, KEYS, DIM, COLUMNS, K_STAGES, V_STAGES)),
        (produce, (q_map, k_map, v_map, grad_map, q_tiles, grad_tiles, own_full, keys_ring,
                   values_ring, batch, head, head // group, q_from + row, k_from, first, end,
                   ROWS, KEYS, K_STAGES, V_STAGES)),
    ], [4, 1], [240, 24])
