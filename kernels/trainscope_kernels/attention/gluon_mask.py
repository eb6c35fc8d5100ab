"""What is done to tiles of scores in Gluon, at the cost of few instructions and registers."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["columns_before", "hide_outside_band", "soft_tanh", "worked_out_here"]


@gluon.jit
def column_and_row(scores, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """(8i, 2t + j, row) of elements in column 8i + 2t + j, to broadcast to a parted tile.

    t is a thread's place among the four of a row. A comparison 8i < limit - (2t + j) has a constant
    of the instruction on its left. Written as column < limit the compiler keeps each column number
    in a register, through the loop around it.
    """
    parted: gl.constexpr = scores.reshape([ROWS, COLUMNS // 8, 4, 2]).type.layout
    of_row: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, parted)))
    of_eight: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, parted)))
    of_thread: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, parted)))
    of_pair: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, parted)))
    eight = gl.arange(0, COLUMNS // 8, of_eight)[None, :, None, None] * 8
    thread = gl.arange(0, 4, of_thread)[None, None, :, None] * 2
    pair = gl.arange(0, 2, of_pair)[None, None, None, :]
    row = gl.arange(0, ROWS, of_row)[:, None, None, None]
    return eight, thread + pair, row


@gluon.jit
def columns_before(scores, limit, PER_ROW: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Which elements of ``scores`` (ROWS, COLUMNS) are in a column before ``limit``.

    PER_ROW: the limit is that of row 0 and grows by one a row.
    """
    layout: gl.constexpr = scores.type.layout
    eight, rest, row = column_and_row(scores, ROWS, COLUMNS)
    limit = limit - rest + (row if PER_ROW else row * 0)
    return gl.convert_layout((eight < limit).reshape([ROWS, COLUMNS]), layout)


@gluon.jit
def worked_out_here(numbers):
    """The same numbers; what follows from them the compiler neither does earlier nor keeps.

    It may not move assembly with side effects to where nobody asks for it.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [numbers], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def hide_outside_band(
    scores, low, high, length, ROWS: gl.constexpr, COLUMNS: gl.constexpr
):  # fmt: skip
    """The scores, but -inf where the column is not in row + low .. row + high, or from length on.

    All counted from the tile's own first row and column. Inside an ``if`` it stays a branch, for it
    is ``worked_out_here``: the compiler would make selects of it all, which every tile pays for.
    """
    layout: gl.constexpr = scores.type.layout
    eight, rest, row = column_and_row(scores, ROWS, COLUMNS)
    row = worked_out_here(row)
    begin = row + low - rest
    end = gl.minimum(row + high + 1, length) - rest
    seen = gl.convert_layout(((eight >= begin) & (eight < end)).reshape([ROWS, COLUMNS]), layout)
    return gl.where(seen, scores, float("-inf"))


@gluon.jit
def soft_tanh(x):
    """tanh of x / (2 log2(e)), in two instructions of the special-function unit.

    A division would scale its operands first, which 1 + exp2(x) never needs: inf gives 0.
    """
    inverse = gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;",
        "=r,r",
        [1.0 + gl.exp2(x)],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )
    return 1.0 - 2.0 * inverse
