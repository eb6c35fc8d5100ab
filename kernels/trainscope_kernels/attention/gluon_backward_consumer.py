"""A consumer warpgroup of the Gluon backward; who waits for whom stands in gluon_backward."""

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

from trainscope_kernels.attention.gluon_backward_mask import hide_keys, past_last_key
from trainscope_kernels.attention.gluon_backward_walk import after, begin
from trainscope_kernels.attention.gluon_dq import add_to_workspace
from trainscope_kernels.attention.gluon_mask import soft_tanh, worked_out_here
from trainscope_kernels.attention.gluon_pipeline import advance
from trainscope_kernels.attention.gluon_warpgroups import meet, settled

__all__ = ["consume"]


@gluon.jit
def add_blocks(
    dk, dv, workspace, block, member, stage, phase, steps, queries, grads, lse_terms, delta_terms,
    k_tiles, v_tiles, ds_tiles, key, keys, low, high, first, stop, blocks, group, way, log2_scale,
    tanh_scale,
    warpgroup: gl.constexpr, WITH_DQ: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr,
    WALK: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr,
    STAGES: gl.constexpr, K_IN_REGISTERS: gl.constexpr, V_IN_REGISTERS: gl.constexpr,
):  # fmt: skip
    """So many steps: what their blocks add to dK and dV, and to dQ in the workspace.

    (dk, dv, workspace, block, member, stage, phase) are as these steps leave them for the next.
    """
    OWN: gl.constexpr = KEYS // 2
    HALF: gl.constexpr = DIM // 2
    ENDS: gl.constexpr = MASK == "end" or MASK == "band"
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    kv_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    s_columns: gl.constexpr = gl.SliceLayout(0, s_layout)
    kv_operand: gl.constexpr = gl.DotOperandLayout(0, s_layout, 2)
    p_operand: gl.constexpr = gl.DotOperandLayout(0, kv_layout, 2)
    q_tiles, q_full, q_empty = queries
    grad_tiles, grad_full, grad_empty = grads
    dtype: gl.constexpr = q_tiles.dtype
    k = k_tiles.index(0).reshape([KEYS, DIM])
    v = v_tiles.index(0).reshape([KEYS, DIM])
    k_own = k.slice(warpgroup * OWN, OWN, 0)
    v_own = v.slice(warpgroup * OWN, OWN, 0)
    k_half = k.slice(warpgroup * HALF, HALF, 1)
    own = key + warpgroup * OWN
    past_end = past_last_key(own, keys, OWN, s_layout, MASK)
    if WITH_DQ:
        no_dq = gl.zeros([ROWS, HALF], gl.float32, dq_layout)
    if K_IN_REGISTERS > 0:
        k_registers = k_own.slice(0, K_IN_REGISTERS, 1).load(kv_operand)
    if V_IN_REGISTERS > 0:
        v_registers = v_own.slice(0, V_IN_REGISTERS, 1).load(kv_operand)
    for _ in range(steps):
        q = q_tiles.index(stage).reshape([ROWS, DIM])
        grad = grad_tiles.index(stage).reshape([ROWS, DIM])
        mbarrier.wait(q_full.index(stage), phase)
        if CAPPED:
            p = settled(gl.zeros([OWN, ROWS], gl.float32, s_layout))
        else:
            p = settled(lse_terms.index(stage).load(s_columns)[None, :].broadcast_to([OWN, ROWS]))
        dp = settled(delta_terms.index(stage).load(s_columns)[None, :].broadcast_to([OWN, ROWS]))
        if MASK == "crossing":
            # the places of K and V would else be kept in registers through the loop before, too
            place = worked_out_here(0)
            k_own = k_tiles.index(place).reshape([KEYS, DIM]).slice(warpgroup * OWN, OWN, 0)
            v_own = v_tiles.index(place).reshape([KEYS, DIM]).slice(warpgroup * OWN, OWN, 0)
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
        else:
            dk = warpgroup_mma(gl.convert_layout(ds, p_operand), q, dk, is_async=True)
            dv = warpgroup_mma_wait(1, deps=(dv,))
            mbarrier.arrive(grad_empty.index(stage), count=1)
        dk = warpgroup_mma_wait(0, deps=(dk,))
        mbarrier.arrive(q_empty.index(stage), count=1)
        stage, phase = advance(stage, phase, STAGES)
        last = block
        block, member, heads = after(block, member, first, stop, group, way, WALK)
        if WITH_DQ:
            workspace += (heads * blocks + block - last).to(gl.int64) * (ROWS * DIM)
    return dk, dv, workspace, block, member, stage, phase


@gluon.jit
def consume(
    dk_map, dv_map, workspace, queries, grads, lse_terms, delta_terms, k_tiles, v_tiles, ds_tiles,
    kv_full, key_instance, key_heads, key, keys, low, high, first, edge, stop, blocks, group, way,
    scale, log2_scale, tanh_scale,
    warpgroup: gl.constexpr, WITH_DQ: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr,
    WALK: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr,
    STAGES: gl.constexpr, K_IN_REGISTERS: gl.constexpr, V_IN_REGISTERS: gl.constexpr,
):  # fmt: skip
    """A warpgroup: its OWN keys' dK and dV, and its half of the columns of each dQ."""
    OWN: gl.constexpr = KEYS // 2
    HALF: gl.constexpr = DIM // 2
    kv_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    dtype: gl.constexpr = k_tiles.dtype
    dk = gl.zeros([OWN, DIM], gl.float32, kv_layout)
    dv = gl.zeros([OWN, DIM], gl.float32, kv_layout)
    block = begin(first, edge, stop, way, WALK)
    member = 0
    stage = 0
    phase = 0
    if WITH_DQ:
        workspace += (key_instance * group).to(gl.int64) * (blocks * ROWS) * DIM
        workspace += (block * 2 + warpgroup) * (ROWS * HALF)
    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(kv_full.index(1), 0)
    dk, dv, workspace, block, member, stage, phase = add_blocks(
        dk, dv, workspace, block, member, stage, phase, (stop - edge) * group, queries, grads,
        lse_terms, delta_terms, k_tiles, v_tiles, ds_tiles, key, keys, low, high, first, stop,
        blocks, group, way, log2_scale, tanh_scale, warpgroup, WITH_DQ,
        "none" if WALK == "apart" else MASK, CAPPED, WALK, ROWS, KEYS, DIM, STAGES,
        K_IN_REGISTERS, V_IN_REGISTERS,
    )  # fmt: skip
    if WALK == "apart":
        dk, dv, workspace, block, member, stage, phase = add_blocks(
            dk, dv, workspace, block, member, stage, phase, (edge - first) * group, queries, grads,
            lse_terms, delta_terms, k_tiles, v_tiles, ds_tiles, key, keys, low, high, first, stop,
            blocks, group, way, log2_scale, tanh_scale, warpgroup, WITH_DQ, "crossing", CAPPED,
            WALK, ROWS, KEYS, DIM, STAGES, 0, 0,
        )  # fmt: skip
    k_tile = k_tiles.index(0)
    v_tile = v_tiles.index(0)
    own = key + warpgroup * OWN
    v_tile.reshape([KEYS, DIM]).slice(warpgroup * OWN, OWN, 0).store(dv.to(dtype))
    if WITH_DQ:
        meet()
    k_tile.reshape([KEYS, DIM]).slice(warpgroup * OWN, OWN, 0).store((dk * scale).to(dtype))
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
