"""Which tile of rows and columns one program takes, with the reason for each number.

A softmax is bound by memory: what counts is bytes on their way. A thread that holds 32 values
leaves room for enough others on the same multiprocessor; more rows a program make up for rows
that are too short to fill one.
"""

from __future__ import annotations

from typing import NamedTuple

from trainscope_kernels.softmax.rows import Rows

__all__ = ["Plan", "backward_plan", "forward_plan"]

SHORT_ROWS = 4096
"""Values of a tile that is made of several short rows: 4 warps with 32 values a thread."""
ACROSS = 32
"""Rows read side by side where a row's own columns are apart: 64 bytes of 16-bit values."""


class Plan(NamedTuple):
    """One program's tile and its warps."""

    rows: int
    columns: int
    warps: int


def forward_plan(rows: Rows, itemsize: int) -> Plan:
    """The tile of the forward kernel for values of ``itemsize`` bytes."""
    whole, share = (32768, 8192) if itemsize < 8 else (8192, 8192)
    return _tile(rows, whole, share, 32)


def backward_plan(rows: Rows, itemsize: int) -> Plan:
    """The tile of the backward kernel, which holds two operands."""
    whole, share = (16384, 8192) if itemsize < 8 else (4096, 4096)
    # two operands of 32 float32 values leave a thread too few registers on Ampere
    return _tile(rows, whole, share, 32 if itemsize == 2 else 16)


def _tile(rows: Rows, whole: int, share: int, values: int) -> Plan:
    """whole, share: columns of an unsplit row at most, of a share; values: those of a thread."""
    across = _across(rows)
    width = _power_above(rows.columns)
    if width * across > whole:
        width = max(share // across, 1)
    # where columns are apart each value has an address of its own, and registers hold that too
    if across > 1:
        values = 16
    else:
        across = min(max(SHORT_ROWS // width, 1), _power_above(rows.rows))
    warps = min(max(width * across // (32 * values), 4), 32)
    return Plan(across, width, warps)


def _across(rows: Rows) -> int:
    """How many rows a tile needs side by side so that memory is read in whole sectors."""
    side_by_side = rows.inner > 1 or (rows.column_stride != 1 and rows.strides[-1] == 1)
    return min(ACROSS, _power_above(rows.rows)) if side_by_side else 1


def _power_above(number: int) -> int:
    return 1 << (number - 1).bit_length()
