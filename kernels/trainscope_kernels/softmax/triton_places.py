"""Where a program's tile lies: its rows and columns, in the input and in the result."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["program_number", "result_rows", "source_rows", "tile_of"]


@triton.jit
def program_number(WIDE: tl.constexpr):
    """This program's number, 64 bits wide where WIDE."""
    if WIDE:
        return tl.program_id(0).to(tl.int64)
    else:
        return tl.program_id(0).to(tl.int32)


@triton.jit
def tile_of(
    program, rows, columns, shares,
    UNIT: tl.constexpr,
    AXIS: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Its ROWS rows, its COLUMNS columns along AXIS, its share of them, and which values exist.

    columns is given in UNITs. The columns are 64 bits wide where WIDE.
    """
    tile, share = program // shares, (program % shares).to(tl.int32)
    row = tile * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    if AXIS == 1:
        row, column = row[:, None], column[None, :]
    else:
        row, column = row[None, :], column[:, None]
    column += share * COLUMNS
    live = (row < rows) & (column < columns * UNIT)
    if WIDE:
        column = column.to(tl.int64)
    return row, column, share, live


@triton.jit
def source_rows(
    row,
    stride0, stride1, stride2, stride3, size1, size2, size3,
    LEVELS: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Where each row starts in a strided tensor, in elements; strides are given in UNITs."""
    offset = (row * 0).to(tl.int64)
    if LEVELS >= 4:
        offset += (row % size3).to(tl.int64) * stride3
        row = row // size3
    if LEVELS >= 3:
        offset += (row % size2).to(tl.int64) * stride2
        row = row // size2
    if LEVELS >= 2:
        offset += (row % size1).to(tl.int64) * stride1
        row = row // size1
    return (offset + row.to(tl.int64) * stride0) * UNIT


@triton.jit
def result_rows(row, columns, inner, LAST: tl.constexpr, UNIT: tl.constexpr):
    """Where each row starts in the contiguous result, in elements; columns in UNITs."""
    if LAST:
        return row.to(tl.int64) * columns * UNIT
    return (row // inner).to(tl.int64) * columns * inner * UNIT + (row % inner)
