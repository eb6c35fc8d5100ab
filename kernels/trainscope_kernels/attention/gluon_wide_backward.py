"""dK and dV of wide heads, for Hopper in Gluon: 64 keys a program, one warpgroup makes each.

The registers of one warpgroup do not hold dK and dV of 64 keys where a head has 256 columns, and
with a softcap, whose tanh is held beside P, not where it has 128. So the first warpgroup makes dK
and the second dV, each from an S of its own: five products where gluon_backward makes four, and no
word between the two. dQ is made by gluon_queries_backward.

Budget of an SM: 227 KB of shared memory, 65,536 registers (240, 240 and 24 a thread)

    head_dim  K, V        Q, dO (2 stages)  row terms  shared
    256       32 + 32 KB  64 + 64 KB        1 KB       193 KB
    128       16 + 16 KB  32 + 32 KB        1 KB        97 KB

The first holds dK (DIM / 2 registers a thread), S and dP (32 each), the second dV and S.

Who waits for whom: kv_full, queries and grads as in gluon_backward, with the same producer.

    barrier     empty: the producer may overwrite
    queries     the first warpgroup's dK and the second's S of the block are complete
    grads       the first's dP and the second's dV of the block are complete
    meet()      once, at the end: dK and dV are put where K and V were, which both read
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

from trainscope_kernels.attention.gluon_backward_copies import produce
from trainscope_kernels.attention.gluon_backward_mask import (
    blocks_that_see,
    hide_keys,
    past_last_key,
)
from trainscope_kernels.attention.gluon_backward_packed import empty_rows, packed_block, put_rows
from trainscope_kernels.attention.gluon_mask import soft_tanh
from trainscope_kernels.attention.gluon_pipeline import advance, init_ring
from trainscope_kernels.attention.gluon_warpgroups import meet, settled

__all__ = ["attention_wide_backward"]


@gluon.jit
def spread(terms, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """The row terms in every one of KEYS rows of S^T or dP^T."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    return terms.load(gl.SliceLayout(0, layout))[None, :].broadcast_to([KEYS, ROWS])


@gluon.jit
def start_of_s(lse_terms, CAPPED: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """What S is added to: the row terms, or zeros where its tanh comes first."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    if CAPPED:
        return settled(gl.zeros([KEYS, ROWS], gl.float32, layout))
    else:
        return settled(spread(lse_terms, ROWS, KEYS))


@gluon.jit
def weights(
    s, lse_terms, past_end, row, key, low, high, log2_scale, tanh_scale,
    SLOPE: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, ROWS: gl.constexpr,
    KEYS: gl.constexpr,
):  # fmt: skip
    """P of a finished S; with SLOPE times that of the cap, as it meets dP."""
    if CAPPED:
        capped = soft_tanh(s * tanh_scale)
        lse_term = lse_terms.load(gl.SliceLayout(0, s.type.layout))[None, :]
        p = gl.exp2(capped * log2_scale + lse_term + past_end)
        if SLOPE:
            p = p * (1.0 - capped * capped)
    else:
        p = gl.exp2(s * log2_scale + past_end)
    return hide_keys(p, key, row, key, low, high, KEYS, ROWS, KEYS, MASK)


@gluon.jit
def consume(
    grad_map, made_to, head_stride, row_stride, queries, grads, lse_terms, delta_terms, k_tile,
    v_tile, kv_full, batch, key_head, key, key_row, keys, q_length, low, high, first, stop,
    group, scale, log2_scale, tanh_scale,
    MAKES_DK: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, GROUPED: gl.constexpr,
    PACKED: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr,
    COLUMNS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A warpgroup: dK of the program's keys with MAKES_DK, else their dV.

    grad_map, made_to, head_stride, row_stride: of what it makes. key, keys: the first key and the
    length of the sequence, q_length of its queries; key_row: where that key is in the tensor.
    """
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    kv_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    p_operand: gl.constexpr = gl.DotOperandLayout(0, kv_layout, 2)
    q_tiles, q_full, q_empty = queries
    grad_tiles, grad_full, grad_empty = grads
    dtype: gl.constexpr = q_tiles.dtype
    k = k_tile.reshape([KEYS, DIM])
    v = v_tile.reshape([KEYS, DIM])
    made = gl.zeros([KEYS, DIM], gl.float32, kv_layout)
    past_end = past_last_key(key, keys, KEYS, s_layout, MASK)
    steps = stop - first
    if GROUPED:
        steps *= group
    block = first
    stage = 0
    phase = 0
    mbarrier.wait(kv_full.index(0), 0)
    if MAKES_DK:
        mbarrier.wait(kv_full.index(1), 0)
    for _ in range(steps):
        q = q_tiles.index(stage).reshape([ROWS, DIM])
        grad = grad_tiles.index(stage).reshape([ROWS, DIM])
        left = q_length - block * ROWS
        mbarrier.wait(q_full.index(stage), phase)
        if PACKED:
            mbarrier.wait(grad_full.index(stage), phase)
            empty_rows(q, left, ROWS, DIM)
            empty_rows(grad, left, ROWS, DIM)
        s = start_of_s(lse_terms.index(stage), CAPPED, ROWS, KEYS)
        if MAKES_DK:
            if CAPPED:
                # the tanh leaves no registers for a dP on its way
                s = warpgroup_mma(k, q.permute((1, 0)), s, is_async=True)
                s = warpgroup_mma_wait(0, deps=(s,))
            else:
                dp = settled(spread(delta_terms.index(stage), ROWS, KEYS))
                s = warpgroup_mma(k, q.permute((1, 0)), s, is_async=True)
                mbarrier.wait(grad_full.index(stage), phase)
                dp = warpgroup_mma(v, grad.permute((1, 0)), dp, is_async=True)
                s = warpgroup_mma_wait(1, deps=(s,))
            p = weights(
                s, lse_terms.index(stage), past_end, block * ROWS, key, low, high, log2_scale,
                tanh_scale, MAKES_DK, MASK, CAPPED, ROWS, KEYS,
            )  # fmt: skip
            if CAPPED:
                dp = settled(spread(delta_terms.index(stage), ROWS, KEYS))
                mbarrier.wait(grad_full.index(stage), phase)
                dp = warpgroup_mma(v, grad.permute((1, 0)), dp, is_async=True)
            dp = warpgroup_mma_wait(0, deps=(dp,))
            mbarrier.arrive(grad_empty.index(stage), count=1)
            ds = gl.convert_layout((p * dp).to(dtype), p_operand)
            made = warpgroup_mma(ds, q, made, is_async=True)
            made = warpgroup_mma_wait(0, deps=(made,))
            mbarrier.arrive(q_empty.index(stage), count=1)
        else:
            s = warpgroup_mma(k, q.permute((1, 0)), s, is_async=True)
            s = warpgroup_mma_wait(0, deps=(s,))
            p = weights(
                s, lse_terms.index(stage), past_end, block * ROWS, key, low, high, log2_scale,
                tanh_scale, MAKES_DK, MASK, CAPPED, ROWS, KEYS,
            )  # fmt: skip
            mbarrier.arrive(q_empty.index(stage), count=1)
            mbarrier.wait(grad_full.index(stage), phase)
            p16 = gl.convert_layout(p.to(dtype), p_operand)
            made = warpgroup_mma(p16, grad, made, is_async=True)
            made = warpgroup_mma_wait(0, deps=(made,))
            mbarrier.arrive(grad_empty.index(stage), count=1)
        stage, phase = advance(stage, phase, STAGES)
        block += 1
        if GROUPED:
            block = gl.where(block == stop, first, block)
    meet()
    made_to += key_head.to(gl.int64) * head_stride * 8 + key_row.to(gl.int64) * row_stride * 8
    place = [batch, key_head, key_row, 0]
    if MAKES_DK:
        put_rows(
            (made * scale).to(dtype), k, k_tile, grad_map, place, made_to, row_stride, keys - key,
            KEYS, COLUMNS, PACKED,
        )  # fmt: skip
    else:
        # TMA has put V there: its copy is over before this warpgroup writes to the same place
        mbarrier.wait(kv_full.index(1), 0)
        put_rows(
            made.to(dtype), v, v_tile, grad_map, place, made_to, row_stride, keys - key, KEYS,
            COLUMNS, PACKED,
        )  # fmt: skip
    tma.store_wait(0)


@gluon.jit(
    do_not_specialize=[
        "dk_head_stride", "dk_row_stride", "dv_head_stride", "dv_row_stride", "keys", "row_blocks",
        "key_blocks", "key_heads", "group", "low", "high", "section",
    ]
)  # fmt: skip
def attention_wide_backward(
    q_map, k_map, v_map, grad_map, dk_map, dv_map, dk, dv, terms, records, dk_head_stride,
    dk_row_stride, dv_head_stride, dv_row_stride, keys, row_blocks, key_blocks, key_heads, group,
    low, high, section, scale, log2_scale, tanh_scale,
    MASK: gl.constexpr, CAPPED: gl.constexpr, GROUPED: gl.constexpr, PACKED: gl.constexpr,
    RECORD: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr,
    COLUMNS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Every program: set up the rings, pick a key block, part into producer and consumers.

    The arguments are those of gluon_backward, less dQ's workspace. PACKED: of sequences, whose
    blocks are in records (see gluon_backward_packed, RECORD numbers each); dk and dv with their
    strides in eights are for rows that TMA cannot write. Otherwise those may be anything. COLUMNS:
    of DIM, those that a head has.
    """
    dtype: gl.constexpr = q_map.dtype
    bars: gl.constexpr = mbarrier.MBarrierLayout()
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    q_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DIM], q_map.layout)
    k_tile = gl.allocate_shared_memory(dtype, [1, 1, KEYS, DIM], k_map.layout)
    v_tile = gl.allocate_shared_memory(dtype, [1, 1, KEYS, DIM], v_map.layout)
    grad_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DIM], grad_map.layout)
    lse_terms = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], plain)
    delta_terms = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], plain)
    kv_full = gl.allocate_shared_memory(gl.int64, [2, 1], bars)
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    grad_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    grad_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    mbarrier.init(kv_full.index(0), count=1)
    mbarrier.init(kv_full.index(1), count=1)
    init_ring(q_full, q_empty, STAGES, 2, 2)
    init_ring(grad_full, grad_empty, STAGES, 1, 2)
    fence_async_shared()
    queries = (q_tiles, q_full, q_empty)
    grads = (grad_tiles, grad_full, grad_empty)
    program = gl.program_id(0)
    if PACKED:
        key_head, key, k_from, keys, q_from, q_length, not_low, not_high, live = packed_block(
            records, key_heads, RECORD
        )
        # the list's band is of keys that see queries
        low = -not_high
        high = -not_low
        batch = 0
        key_instance = key_head
        key_row = k_from + key
        first, stop = blocks_that_see(key, low, high, gl.cdiv(q_length, ROWS), ROWS, KEYS, MASK)
        first = gl.maximum(first, 0)
        stop = gl.where(live, stop, first)
    elif MASK == "none" or MASK == "end":
        key_instance = program // key_blocks
        key_block = program - key_instance * key_blocks
    else:
        in_section = program % (section * key_blocks)
        key_instance = program // (section * key_blocks) * section + in_section % section
        key_block = in_section // section
    if not PACKED:
        key = key_block * KEYS
        key_row = key
        q_from = 0
        q_length = 0
        first, stop = blocks_that_see(key, low, high, row_blocks, ROWS, KEYS, MASK)
        batch = key_instance // key_heads
        key_head = key_instance - batch * key_heads
    # The arguments are written out in the calls: a tuple bound to a name loses its constexprs.
    # fmt: off
    gl.warp_specialize([
        (consume, (dk_map, dk, dk_head_stride, dk_row_stride, queries, grads, lse_terms,
                   delta_terms, k_tile, v_tile, kv_full, batch, key_head, key, key_row, keys,
                   q_length, low, high, first, stop, group, scale, log2_scale, tanh_scale, True,
                   MASK, CAPPED, GROUPED, PACKED, ROWS, KEYS, DIM, COLUMNS, STAGES)),
        (consume, (dv_map, dv, dv_head_stride, dv_row_stride, queries, grads, lse_terms,
                   delta_terms, k_tile, v_tile, kv_full, batch, key_head, key, key_row, keys,
                   q_length, low, high, first, stop, group, scale, log2_scale, tanh_scale, False,
                   MASK, CAPPED, GROUPED, PACKED, ROWS, KEYS, DIM, COLUMNS, STAGES)),
        (produce, (q_map, k_map, v_map, grad_map, terms, queries, grads, lse_terms, delta_terms,
                   k_tile, v_tile, kv_full, batch, key_head, key_instance, key_row, first, first,
                   stop, row_blocks, q_from, q_length, group, 1, ROWS, STAGES,
                   "heads" if GROUPED else "up", PACKED)),
    ], [4, 1], [240, 24])
