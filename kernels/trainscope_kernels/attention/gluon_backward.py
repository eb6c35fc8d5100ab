"""FlashAttention backward for Hopper in Gluon: 128 keys a program, in two halves.

Every program keeps its K and V, goes over all queries that see them, and sums dK and dV in
registers; dQ of each query block is added to a float32 workspace (gluon_dq). Two warpgroups have 64
keys each; one warp (gluon_backward_copies) copies.

Of grouped heads one program takes all query heads of its key head (gluon_backward_walk), so that dK
and dV are summed where they are. A program a query head would write its dK and dV for another
kernel to sum: in float32 16 bytes an element of q more, 5 % of the time at 4096 keys, and 10 % of
a causal call's.

Past the last query and key TMA reads zeros and writes nothing. Past queries have P = 0 by their row
term, past keys by an infinite addend (gluon_backward_mask).

A step is 64 queries (a block). S and dP are computed transposed, keys by queries, so that P^T and
dS^T come out of the tensor cores laid out as the register operands that dV += P^T dO and
dK += dS^T Q need. dQ = dS K needs all 128 keys, so dS goes through shared memory and each warpgroup
makes one half of dQ's columns. S starts at -lse / scale and dP at -delta (gluon_row_terms): P is
then one exp2, dS one product, and no register holds a row term. That removed all spills.

Budget of an SM: 227 KB of shared memory, 65,536 registers (240, 240 and 24 a thread)

    head_dim  K, V       Q, dO (2 stages)  dS (2)   row terms  shared
    128       32 + 32 KB  32 + 32 KB       32 KB    1 KB       161 KB
    64        16 + 16 KB  16 + 16 KB       32 KB    1 KB        97 KB

A consumer holds dK and dV (DIM / 2 registers a thread each), S and dP (32 each), and of K or V what
is said to be in registers. What limits the loop is shared-memory bandwidth: a 64x64 wgmma with both
operands in shared memory reads 16 KB for 128 cycles of work, with one in registers 8 KB.

Who waits for whom:

    barrier     full: consumers may read           empty: the producer may overwrite
    kv_full     TMA of K (0), of V (1): once       never: K and V stay
    queries     TMA of Q, and a store of its row   both warpgroups' dK of the block is complete
                terms: two arrivals
    grads       TMA of dO                          both warpgroups' dV of the block is complete
    meet()      both warpgroups have written their half of dS, before either reads it for dQ. There
                are two dS buffers: who writes one again has met the other since, and that one had
                waited for the dQ that read it. Once more at the end: dK is put where K was, which
                the other warpgroup's last dQ reads.
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
from trainscope_kernels.attention.gluon_backward_walk import after, begin, way_of
from trainscope_kernels.attention.gluon_dq import add_to_workspace
from trainscope_kernels.attention.gluon_mask import soft_tanh
from trainscope_kernels.attention.gluon_pipeline import advance, init_ring
from trainscope_kernels.attention.gluon_warpgroups import meet, settled

__all__ = ["attention_backward"]


@gluon.jit
def consume(
    dk_map, dv_map, workspace, queries, grads, lse_terms, delta_terms, k_tile, v_tile, ds_tiles,
    kv_full, key_instance, key_heads, key, keys, low, high, first, stop, blocks, group, way,
    scale, log2_scale, tanh_scale,
    warpgroup: gl.constexpr, WITH_DQ: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr,
    GROUPED: gl.constexpr, IN_TURN: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr,
    DIM: gl.constexpr, STAGES: gl.constexpr, K_IN_REGISTERS: gl.constexpr,
    V_IN_REGISTERS: gl.constexpr,
):  # fmt: skip
    """A warpgroup: its OWN keys' dK and dV, and its half of the columns of each dQ."""
    OWN: gl.constexpr = KEYS // 2
    HALF: gl.constexpr = DIM // 2
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    kv_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    s_columns: gl.constexpr = gl.SliceLayout(0, s_layout)
    kv_operand: gl.constexpr = gl.DotOperandLayout(0, s_layout, 2)
    p_operand: gl.constexpr = gl.DotOperandLayout(0, kv_layout, 2)
    q_tiles, q_full, q_empty = queries
    grad_tiles, grad_full, grad_empty = grads
    dtype: gl.constexpr = q_tiles.dtype
    k_own = k_tile.reshape([KEYS, DIM]).slice(warpgroup * OWN, OWN, 0)
    v_own = v_tile.reshape([KEYS, DIM]).slice(warpgroup * OWN, OWN, 0)
    k_half = k_tile.reshape([KEYS, DIM]).slice(warpgroup * HALF, HALF, 1)
    dk = gl.zeros([OWN, DIM], gl.float32, kv_layout)
    dv = gl.zeros([OWN, DIM], gl.float32, kv_layout)
    steps = stop - first
    instance = key_instance
    if GROUPED:
        steps *= group
        instance *= group
    block = begin(first, stop, way, IN_TURN)
    member = 0
    if WITH_DQ:
        no_dq = gl.zeros([ROWS, HALF], gl.float32, dq_layout)
        workspace += instance.to(gl.int64) * (blocks * ROWS) * DIM
        workspace += (block * 2 + warpgroup) * (ROWS * HALF)
    own = key + warpgroup * OWN
    ENDS: gl.constexpr = MASK == "end" or MASK == "band"
    past_end = past_last_key(own, keys, OWN, s_layout, MASK)
    stage = 0
    phase = 0
    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(kv_full.index(1), 0)
    if K_IN_REGISTERS > 0:
        k_registers = k_own.slice(0, K_IN_REGISTERS, 1).load(kv_operand)
    if V_IN_REGISTERS > 0:
        v_registers = v_own.slice(0, V_IN_REGISTERS, 1).load(kv_operand)
    for turn in range(first, first + steps):
        if not GROUPED:
            block = turn
        q = q_tiles.index(stage).reshape([ROWS, DIM])
        grad = grad_tiles.index(stage).reshape([ROWS, DIM])
        mbarrier.wait(q_full.index(stage), phase)
        if CAPPED:
            p = settled(gl.zeros([OWN, ROWS], gl.float32, s_layout))
        else:
            p = settled(lse_terms.index(stage).load(s_columns)[None, :].broadcast_to([OWN, ROWS]))
        dp = settled(delta_terms.index(stage).load(s_columns)[None, :].broadcast_to([OWN, ROWS]))
        if K_IN_REGISTERS == 0:
            p = warpgroup_mma(k_own, q.permute((1, 0)), p, is_async=True)
        else:
            p = warpgroup_mma(k_registers, q.permute((1, 0)), p, is_async=True)
        mbarrier.wait(grad_full.index(stage), phase)
        if V_IN_REGISTERS == 0:
            dp = warpgroup_mma(v_own, grad.permute((1, 0)), dp, is_async=True)
            p = warpgroup_mma_wait(1, deps=(p,))
        elif V_IN_REGISTERS == DIM:
            dp = warpgroup_mma(v_registers, grad.permute((1, 0)), dp, is_async=True)
            p = warpgroup_mma_wait(1, deps=(p,))
        else:
            REST: gl.constexpr = DIM - V_IN_REGISTERS
            front = grad.slice(0, V_IN_REGISTERS, 1).permute((1, 0))
            back = grad.slice(V_IN_REGISTERS, REST, 1).permute((1, 0))
            dp = warpgroup_mma(v_registers, front, dp, is_async=True)
            dp = warpgroup_mma(v_own.slice(V_IN_REGISTERS, REST, 1), back, dp, is_async=True)
            p = warpgroup_mma_wait(2, deps=(p,))
        # while dP is on its way
        if CAPPED:
            capped = soft_tanh(p * tanh_scale)
            lse_term = lse_terms.index(stage).load(s_columns)[None, :]
            p = gl.exp2(capped * log2_scale + lse_term + past_end)
        else:
            p = gl.exp2(p * log2_scale + past_end if ENDS else p * log2_scale)
        p = hide_keys(p, own, block * ROWS, key, low, high, OWN, ROWS, KEYS, MASK)
        p16 = gl.convert_layout(p.to(dtype), p_operand)
        if CAPPED:
            # the slope of the cap joins the factor that dP meets
            p = p * (1.0 - capped * capped)
        dp = warpgroup_mma_wait(0, deps=(dp,))
        dv = warpgroup_mma(p16, grad, dv, is_async=True)
        ds = (p * dp).to(dtype)
        if WITH_DQ:
            ds_tile = ds_tiles.index(stage)
            ds_tile.slice(warpgroup * OWN, OWN, 0).store(ds)
            fence_async_shared()
            meet()
            # dQ before dK, so that its sums are on their way to memory while dK runs
            dq = warpgroup_mma(ds_tile.permute((1, 0)), k_half, no_dq, use_acc=False, is_async=True)
            dk = warpgroup_mma(gl.convert_layout(ds, p_operand), q, dk, is_async=True)
            dv, dq = warpgroup_mma_wait(1, deps=(dv, dq))
            mbarrier.arrive(grad_empty.index(stage), count=1)
            add_to_workspace(dq, workspace, ROWS, HALF)
            if not GROUPED:
                workspace += ROWS * DIM
        else:
            dk = warpgroup_mma(gl.convert_layout(ds, p_operand), q, dk, is_async=True)
            dv = warpgroup_mma_wait(1, deps=(dv,))
            mbarrier.arrive(grad_empty.index(stage), count=1)
        dk = warpgroup_mma_wait(0, deps=(dk,))
        mbarrier.arrive(q_empty.index(stage), count=1)
        stage, phase = advance(stage, phase, STAGES)
        if GROUPED:
            last = block
            block, member, heads = after(block, member, first, stop, group, way, IN_TURN)
            if WITH_DQ:
                workspace += (heads * blocks + block - last).to(gl.int64) * (ROWS * DIM)
    v_own.store(dv.to(dtype))
    if WITH_DQ:
        meet()
    k_own.store((dk * scale).to(dtype))
    fence_async_shared()
    batch = key_instance // key_heads
    key_head = key_instance - batch * key_heads
    tma.async_copy_shared_to_global(
        dv_map, [batch, key_head, own, 0], v_tile.slice(warpgroup * OWN, OWN, 2)
    )
    tma.async_copy_shared_to_global(
        dk_map, [batch, key_head, own, 0], k_tile.slice(warpgroup * OWN, OWN, 2)
    )
    tma.store_wait(0)


@gluon.jit(
    do_not_specialize=[
        "keys",
        "row_blocks",
        "key_blocks",
        "key_heads",
        "group",
        "low",
        "high",
        "section",
        "cohort",
    ]
)
def attention_backward(
    q_map, k_map, v_map, grad_map, dk_map, dv_map, terms, workspace, keys, row_blocks, key_blocks,
    key_heads, group, low, high, section, cohort, scale, log2_scale, tanh_scale,
    WITH_DQ: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, GROUPED: gl.constexpr,
    ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
    K_IN_REGISTERS: gl.constexpr, V_IN_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Every program: set up the rings, pick a key block, part into producer and consumers.

    *_map: tensor maps of (batch, heads, length, DIM), the length being ``keys`` or that of q.
    terms: see gluon_row_terms. workspace: see gluon_dq, zeros; any pointer without WITH_DQ. group:
    query heads of a key head, one without GROUPED. low, high, MASK: see gluon_backward_mask.
    section: with a band, key heads that run together, a divisor of batch * key_heads. cohort: see
    gluon_backward_walk. log2_scale, tanh_scale: P is exp2(S * log2_scale), or with CAPPED
    exp2(tanh(S * tanh_scale / (2 log2(e))) * log2_scale).
    """
    dtype: gl.constexpr = q_map.dtype
    IN_TURN: gl.constexpr = GROUPED and MASK == "diagonal"
    bars: gl.constexpr = mbarrier.MBarrierLayout()
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, ROWS], dtype)
    q_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DIM], q_map.layout)
    k_tile = gl.allocate_shared_memory(dtype, [1, 1, KEYS, DIM], k_map.layout)
    v_tile = gl.allocate_shared_memory(dtype, [1, 1, KEYS, DIM], v_map.layout)
    grad_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DIM], grad_map.layout)
    if WITH_DQ:
        ds_tiles = gl.allocate_shared_memory(dtype, [STAGES, KEYS, ROWS], ds_layout)
    else:
        ds_tiles = k_tile
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
    if MASK == "none" or MASK == "end":
        key_instance = program // key_blocks
        key_block = program - key_instance * key_blocks
    else:
        # within a section the first keys of all heads first: most queries see them
        in_section = program % (section * key_blocks)
        key_instance = program // (section * key_blocks) * section + in_section % section
        key_block = in_section // section
    key = key_block * KEYS
    way = way_of(key_block, cohort, IN_TURN)
    first, stop = blocks_that_see(key, low, high, row_blocks, ROWS, KEYS, MASK)
    batch = key_instance // key_heads
    key_head = key_instance - batch * key_heads
    # The arguments are written out in the calls: a tuple bound to a name loses its constexprs.
    # fmt: off
    gl.warp_specialize([
        (consume, (dk_map, dv_map, workspace, queries, grads, lse_terms, delta_terms, k_tile,
                   v_tile, ds_tiles, kv_full, key_instance, key_heads, key, keys, low, high,
                   first, stop, row_blocks, group, way, scale, log2_scale, tanh_scale, 0,
                   WITH_DQ, MASK, CAPPED, GROUPED, IN_TURN, ROWS, KEYS, DIM, STAGES,
                   K_IN_REGISTERS, V_IN_REGISTERS)),
        (consume, (dk_map, dv_map, workspace, queries, grads, lse_terms, delta_terms, k_tile,
                   v_tile, ds_tiles, kv_full, key_instance, key_heads, key, keys, low, high,
                   first, stop, row_blocks, group, way, scale, log2_scale, tanh_scale, 1,
                   WITH_DQ, MASK, CAPPED, GROUPED, IN_TURN, ROWS, KEYS, DIM, STAGES,
                   K_IN_REGISTERS, V_IN_REGISTERS)),
        (produce, (q_map, k_map, v_map, grad_map, terms, queries, grads, lse_terms, delta_terms,
                   k_tile, v_tile, kv_full, batch, key_head, key_instance, key, first, stop,
                   row_blocks, 0, 0, group, way, ROWS, STAGES, GROUPED, IN_TURN, False)),
    ], [4, 1], [240, 24])
