"""The copying warp of the Gluon backward; who waits for whom stands in gluon_backward."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from trainscope_kernels.attention.gluon_backward_walk import after, begin
from trainscope_kernels.attention.gluon_pipeline import advance

__all__ = ["produce"]


@gluon.jit
def load_terms(terms, length, rows, q_from, q_length, PACKED: gl.constexpr):
    """Both row terms of a head's rows; PACKED: of a sequence's, and P = 0 past its end."""
    if PACKED:
        within = rows < q_length
        lse_term = gl.load(terms + q_from + rows, within, float("-inf"))
        return lse_term, gl.load(terms + length + q_from + rows, within, 0.0)
    else:
        return gl.load(terms + rows), gl.load(terms + length + rows)


@gluon.jit
def produce(
    q_map, k_map, v_map, grad_map, terms, queries, grads, lse_terms, delta_terms, k_tile,
    v_tile, kv_full, batch, key_head, key_instance, key_row, first, edge, stop, blocks, q_from,
    q_length, group, way,
    ROWS: gl.constexpr, STAGES: gl.constexpr, WALK: gl.constexpr, PACKED: gl.constexpr,
):  # fmt: skip
    """The copying warp: K and V once, then Q and dO with their row terms, block by block."""
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [1], [0])
    q_tiles, q_full, q_empty = queries
    grad_tiles, grad_full, grad_empty = grads
    rows = gl.arange(0, ROWS, layout)
    length = blocks * ROWS
    steps = (stop - first) * group
    head = key_head * group
    terms += (key_instance * group).to(gl.int64) * (2 * length)
    block = begin(first, edge, stop, way, WALK)
    member = 0
    # the terms are loaded a step ahead: their latency hides behind the waits
    lse_term, delta_term = load_terms(terms, length, block * ROWS + rows, q_from, q_length, PACKED)
    if PACKED and steps == 0:
        # nobody sees these keys: let the consumers pass
        mbarrier.arrive(kv_full.index(0), count=1)
        mbarrier.arrive(kv_full.index(1), count=1)
    else:
        mbarrier.expect(kv_full.index(0), k_map.block_type.nbytes)
        tma.async_copy_global_to_shared(
            k_map, [batch, key_head, key_row, 0], kv_full.index(0), k_tile
        )
    stage = 0
    phase = 1
    for step in range(steps):
        row = q_from + block * ROWS if PACKED else block * ROWS
        mbarrier.wait(q_empty.index(stage), phase)
        mbarrier.expect(q_full.index(stage), q_map.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_map, [batch, head, row, 0], q_full.index(stage), q_tiles.index(stage)
        )
        lse_terms.index(stage).store(lse_term)
        delta_terms.index(stage).store(delta_term)
        mbarrier.arrive(q_full.index(stage), count=1)
        if step == 0:
            # V after the first Q: S needs only K and Q
            mbarrier.expect(kv_full.index(1), v_map.block_type.nbytes)
            tma.async_copy_global_to_shared(
                v_map, [batch, key_head, key_row, 0], kv_full.index(1), v_tile
            )
        mbarrier.wait(grad_empty.index(stage), phase)
        mbarrier.expect(grad_full.index(stage), grad_map.block_type.nbytes)
        tma.async_copy_global_to_shared(
            grad_map, [batch, head, row, 0], grad_full.index(stage), grad_tiles.index(stage)
        )
        if step + 1 < steps:
            block, member, heads = after(block, member, first, stop, group, way, WALK)
            head += heads
            terms += heads.to(gl.int64) * (2 * length)
            lse_term, delta_term = load_terms(
                terms, length, block * ROWS + rows, q_from, q_length, PACKED
            )
        stage, phase = advance(stage, phase, STAGES)
