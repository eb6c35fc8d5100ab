"""Masks over tiles of scores in Gluon, at the cost of a comparison an element and few registers."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["columns_before"]


@gluon.jit
def columns_before(scores, limit, PER_ROW: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Which elements of ``scores`` (ROWS, COLUMNS) are in a column before ``limit``.

    PER_ROW: the limit is that of row 0 and grows by one a row.

    A thread holds the columns 8i + 2t + j, t being its place in the row's four threads: as
    8i < limit - 2t - j, the left side is a constant of the instruction. Written as columns < limit
    the compiler keeps each column number in a register through the loop around it.
    """
    layout: gl.constexpr = scores.type.layout
    parted: gl.constexpr = scores.reshape([ROWS, COLUMNS // 8, 4, 2]).type.layout
    of_row: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, parted)))
    of_eight: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, parted)))
    of_thread: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, parted)))
    of_pair: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, parted)))
    eight = gl.arange(0, COLUMNS // 8, of_eight)[None, :, None, None] * 8
    thread = gl.arange(0, 4, of_thread)[None, None, :, None] * 2
    pair = gl.arange(0, 2, of_pair)[None, None, None, :]
    row = gl.arange(0, ROWS, of_row)[:, None, None, None]
    limit = limit - thread - pair + (row if PER_ROW else row * 0)
    return gl.convert_layout((eight < limit).reshape([ROWS, COLUMNS]), layout)
