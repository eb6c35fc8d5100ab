"""Which queries a block of keys is seen by, and P of the others, in the Gluon backward.

A band as in gluon_band: query i sees key j where i + low <= j <= i + high. MASK says what a kernel
is compiled for:

    "none"      no band, and a whole number of key blocks
    "end"       no band; the last block of keys is cut short
    "diagonal"  no limit by ``low``, and all keys that the last query sees exist: what is past the
                last key is hidden as any other
    "crossing"  the same, of blocks of queries each of which it hides some of the keys from
    "band"      anything

P is 0 of what is hidden, whatever the scores are: a query's LSE is of the keys that it sees.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from trainscope_kernels.attention.gluon_mask import (
    column_and_row,
    columns_before,
    worked_out_here,
)

__all__ = ["blocks_that_see", "hide_columns", "hide_keys", "past_diagonal", "past_last_key"]


@gluon.jit
def blocks_that_see(
    key, low, high, row_blocks, ROWS: gl.constexpr, KEYS: gl.constexpr, MASK: gl.constexpr
):  # fmt: skip
    """(first, stop): the row blocks that see a key of the block.

    Keys that no query sees have one block all the same, all of it hidden: it writes their zeros.
    """
    first = key * 0
    stop = row_blocks
    if MASK == "diagonal" or MASK == "band":
        first = gl.minimum(gl.maximum(key - high, 0) // ROWS, row_blocks - 1)
    if MASK == "band":
        stop = gl.minimum((key + KEYS - 1 - low) // ROWS + 1, row_blocks)
        stop = gl.maximum(stop, first + 1)
    return first, stop


@gluon.jit
def past_diagonal(key, high, first, stop, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """The first block, of those from ``first`` up to ``stop``, whose queries see all of the keys.

    "diagonal" only. It is ``stop`` where there is none.
    """
    edge = gl.cdiv(gl.maximum(key + KEYS - 1 - high, 0), ROWS)
    return gl.minimum(gl.maximum(edge, first), stop)


@gluon.jit
def past_last_key(key, keys, KEYS: gl.constexpr, layout: gl.constexpr, MASK: gl.constexpr):
    """What to add to the exponents of KEYS rows: -inf past the last key, else 0.

    TMA reads zeros there, and exp(-lse) need not be finite. The sum is one instruction with the
    product before it, and its registers are two.
    """
    if MASK == "end" or MASK == "band":
        row = key + gl.arange(0, KEYS, gl.SliceLayout(1, layout))
        return gl.where(row < keys, 0.0, float("-inf"))[:, None]
    else:
        return 0.0


@gluon.jit
def hide_after_query(p, offset, high, OWN: gl.constexpr, ROWS: gl.constexpr):
    """P^T, 0 of keys more than ``high`` past the query; offset: first key less first query."""
    eight, rest, line = column_and_row(p, OWN, ROWS)
    seen = eight >= worked_out_here(line) + offset - rest - high
    return gl.where(gl.convert_layout(seen.reshape([OWN, ROWS]), p.type.layout), p, 0.0)


@gluon.jit
def hide_keys(
    p, own, row, key, low, high,
    OWN: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, MASK: gl.constexpr,
):  # fmt: skip
    """P^T (OWN keys from ``own`` on, ROWS queries from ``row`` on), 0 outside the band.

    key: the first of the program's KEYS, so that both warpgroups decide the same.
    """
    if MASK == "diagonal":  # noqa: SIM102 (one is known to the compiler)
        if row < key - high + KEYS:
            p = hide_after_query(p, own - row, high, OWN, ROWS)
    if MASK == "crossing":
        p = hide_after_query(p, own - row, high, OWN, ROWS)
    if MASK == "band":
        if row < key - high + KEYS:
            p = gl.where(columns_before(p, own - high - row, True, OWN, ROWS), 0.0, p)
        if row + ROWS > key - low:
            p = gl.where(columns_before(p, own - low + 1 - row, True, OWN, ROWS), p, 0.0)
    return p


@gluon.jit
def hide_columns(
    p, row, key, keys, low, high, ROWS: gl.constexpr, KEYS: gl.constexpr, MASK: gl.constexpr
):  # fmt: skip
    """P (ROWS queries from ``row`` on, KEYS keys from ``key`` on), 0 outside the band."""
    if MASK == "diagonal" or MASK == "band":  # noqa: SIM102 (one is known to the compiler)
        if key + KEYS > row + high + 1:
            p = gl.where(columns_before(p, row + high + 1 - key, True, ROWS, KEYS), p, 0.0)
    if MASK == "band":  # noqa: SIM102
        if key < row + ROWS - 1 + low:
            p = gl.where(columns_before(p, row + low - key, True, ROWS, KEYS), 0.0, p)
    if MASK == "end" or MASK == "band":  # noqa: SIM102
        if key + KEYS > keys:
            p = gl.where(columns_before(p, keys - key, False, ROWS, KEYS), p, 0.0)
    return p
