"""Which tile of rows and columns one program takes, with the reason for each number.

A softmax is bound by memory: what counts is bytes on their way. A thread that holds 32 values
leaves room for enough others on the same multiprocessor; more rows a program make up for rows
that are too short to fill one.
"""

from __future__ import annotations

from typing import NamedTuple

from trainscope_kernels.softmax.rows import Rows

__all__ = ["MOST_TOGETHER", "Plan", "backward_plan", "forward_plan"]

MOST_TOGETHER = 16
"""Programs that wait for one another must all fit on the GPU at once; the smallest slice of one
(MIG) has 14 multiprocessors with room for two each."""
FEW = 4096
"""Values of a tile that is made of several short rows: 4 warps with 32 values a thread."""
ACROSS = 32
"""Rows read side by side where a row's own columns are apart: 64 bytes of 16-bit values."""


class Plan(NamedTuple):
    """One program's tile. together: programs of one row exchange their sums while they run."""

    rows: int
    columns: int
    warps: int
    together: bool


def forward_plan(rows: Rows, itemsize: int, can_wait: bool) -> Plan:
    """The tile of the forward kernel for values of ``itemsize`` bytes."""
    whole = 32768 if itemsize < 8 else 16384
    return _plan(rows, whole, 16384 if itemsize < 8 else 8192, can_wait and itemsize < 8)


def backward_plan(rows: Rows, itemsize: int, can_wait: bool) -> Plan:
    """The tile of the backward kernel, which holds two operands of ``itemsize`` bytes."""
    whole = 32768 // itemsize * 2 if itemsize < 8 else 4096
    return _plan(rows, whole, min(whole, 8192), can_wait and itemsize < 8)


def _plan(rows: Rows, whole: int, share: int, can_wait: bool) -> Plan:
    across = _across(rows)
    width = _power_above(rows.columns)
    if width * across > whole:
        width = max(share // across, 1)
    if across == 1:
        across = min(max(FEW // width, 1), _power_above(rows.rows))
    shares = -(-rows.columns // width)
    warps = min(max(width * across // 1024, 1), 32)
    return Plan(across, width, warps, can_wait and 1 < shares <= MOST_TOGETHER)


def _across(rows: Rows) -> int:
    """How many rows a tile needs side by side so that memory is read in whole sectors."""
    side_by_side = rows.inner > 1 or (rows.column_stride != 1 and rows.strides[-1] == 1)
    return min(ACROSS, _power_above(rows.rows)) if side_by_side else 1


def _power_above(number: int) -> int:
    return 1 << (number - 1).bit_length()
