"""What a consumer of the Gluon forward does with a tile, piece by piece: products, sums, stores."""

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

from trainscope_kernels.attention.gluon_mask import worked_out_here
from trainscope_kernels.attention.gluon_pipeline import advance

__all__ = [
    "add_values",
    "empty_rows",
    "finite_or_zero",
    "hand_back",
    "scores",
    "store_part",
    "sums_by_thread",
    "times_rows",
    "wait_for_values",
]


@gluon.jit
def sums_by_thread(p, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """Row sums over the columns that each thread holds; four threads share a row."""
    return gl.sum(gl.sum(p.reshape([ROWS, KEYS // 8, 4, 2]), 3), 1)


@gluon.jit
def hand_back(keys, values, count, k_stage, k_phase, v_stage, v_phase, STAGES: gl.constexpr):
    """Give back so many tiles unread, as they come: only other warpgroups see them."""
    _, k_full, k_empty = keys
    _, v_full, v_empty = values
    for _ in range(count):
        mbarrier.wait(k_full.index(k_stage), k_phase)
        mbarrier.arrive(k_empty.index(k_stage), count=1)
        k_stage, k_phase = advance(k_stage, k_phase, STAGES)
        mbarrier.wait(v_full.index(v_stage), v_phase)
        mbarrier.arrive(v_empty.index(v_stage), count=1)
        v_stage, v_phase = advance(v_stage, v_phase, STAGES)
    return k_stage, k_phase, v_stage, v_phase


@gluon.jit
def scores(q_main, q_rest, k, zeros, MAIN: gl.constexpr, REST: gl.constexpr):
    """S = Q K^T, on its way."""
    s = warpgroup_mma(
        q_main, k.slice(0, MAIN, 1).permute((1, 0)), zeros, use_acc=False, is_async=True
    )
    if REST > 0:
        s = warpgroup_mma(q_rest, k.slice(MAIN, REST, 1).permute((1, 0)), s, is_async=True)
    return s


@gluon.jit
def add_values(p16, v, out_main, out_rest, MAIN: gl.constexpr, REST: gl.constexpr):
    """O += P V, on its way."""
    out_main = warpgroup_mma(p16, v.slice(0, MAIN, 1), out_main, is_async=True)
    if REST > 0:
        out_rest = warpgroup_mma(p16, v.slice(MAIN, REST, 1), out_rest, is_async=True)
    return out_main, out_rest


@gluon.jit
def wait_for_values(out_main, out_rest, REST: gl.constexpr):
    """O, when P V is complete."""
    if REST > 0:
        out_main, out_rest = warpgroup_mma_wait(0, deps=(out_main, out_rest))
    else:
        out_main = warpgroup_mma_wait(0, deps=(out_main,))
    return out_main, out_rest


@gluon.jit
def finite_or_zero(top):
    """The row maximum, and 0 for a query that has seen no key: -inf less -inf would be NaN."""
    return gl.where(top == float("-inf"), 0.0, top)


@gluon.jit
def times_rows(out_main, out_rest, factor, REST: gl.constexpr):
    """O with each row multiplied."""
    out_main = (
        out_main * gl.convert_layout(factor, gl.SliceLayout(1, out_main.type.layout))[:, None]
    )
    if REST > 0:
        rows: gl.constexpr = gl.SliceLayout(1, out_rest.type.layout)
        out_rest = out_rest * gl.convert_layout(factor, rows)[:, None]
    return out_main, out_rest


@gluon.jit
def empty_rows(values, stage, phase, begin, KEYS: gl.constexpr, DIM: gl.constexpr):
    """Zeros in the rows of V from ``begin`` on, which are the next sequence's, if there are any.

    Their P is 0, but 0 times an inf or NaN is NaN. Every warpgroup does it for itself: all write
    the same, and none reads before it has written.
    """
    tiles, full, _ = values
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DIM, DIM // 8], [4, 1], [1, 0])
    if begin < KEYS:
        mbarrier.wait(full.index(stage), phase)
        v = tiles.index(stage).reshape([KEYS, DIM])
        rows = worked_out_here(gl.arange(0, KEYS, gl.SliceLayout(1, layout)))
        own = v.load(layout)
        v.store(gl.where(rows[:, None] < begin, own, gl.zeros_like(own)))
        fence_async_shared()


@gluon.jit
def store_part(
    part, tile, out_map, place, to, row_stride, left,
    ROWS: gl.constexpr, MAIN: gl.constexpr, COLUMNS: gl.constexpr, PACKED: gl.constexpr,
):  # fmt: skip
    """Columns of O through ``tile`` to ``place``.

    What is past the end or the head is outside the tensor map, and TMA leaves it. PACKED: only
    ``left`` of the rows are the sequence's, and where these are not all they go to the pointer.
    """
    here = tile.reshape([ROWS, MAIN]).slice(0, COLUMNS, 1)
    here.store(part)
    fence_async_shared()
    if PACKED:
        if left >= ROWS:
            tma.async_copy_shared_to_global(out_map, place, tile)
        else:
            layout: gl.constexpr = gl.BlockedLayout(
                [1, 8], [256 // COLUMNS, COLUMNS // 8], [4, 1], [1, 0]
            )
            rows = worked_out_here(gl.arange(0, ROWS, gl.SliceLayout(1, layout)))
            columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
            pointers = to + (rows * 8).to(gl.int64)[:, None] * row_stride + columns[None, :]
            gl.store(pointers, here.load(layout), mask=(rows < left)[:, None])
    else:
        tma.async_copy_shared_to_global(out_map, place, tile)
