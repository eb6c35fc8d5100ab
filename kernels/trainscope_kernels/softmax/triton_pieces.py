"""What the forward and the backward kernel share: places, exact exp, and the shares' exchange."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "combined",
    "exp_of_difference",
    "inverse_of",
    "program_number",
    "published",
    "result_rows",
    "source_rows",
    "still_packed",
]

LOG2E = tl.constexpr(1.4426950216293335)
"""log2(e) rounded to float32; LOG2E_REST is what that left out."""
LOG2E_REST = tl.constexpr(1.92596298909109e-08)
LN2 = tl.constexpr(0.6931471805599453)
NO_EXP_BELOW = tl.constexpr(-150.0)
"""exp of it is 0 in float32, and its product with LOG2E is finite."""


@triton.jit
def program_number(words_ptr, rows, shares, TOGETHER: tl.constexpr, WIDE: tl.constexpr):
    """This program's number, from which its tile and its share follow.

    Programs that wait for one another are numbered as they start: those that wait then only wait
    for some that are next to start, and all before them end and make room.
    """
    if TOGETHER:
        # the counter lies behind the words
        program = tl.atomic_add(words_ptr + rows * shares, 1, sem="relaxed")
    else:
        program = tl.program_id(0)
    if WIDE:
        return program.to(tl.int64)
    return program.to(tl.int32)


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


@triton.jit
def exp_of_difference(difference, EXACT: tl.constexpr):
    """Exp of values that are at most 0, -inf or NaN; EXACT where float32 is stored.

    One product rounds log2(e) * difference to float32, which costs 7e-6 relative at -87; what the
    rounding left out is put back to first order.
    """
    if difference.dtype == tl.float64:
        return tl.exp(difference)
    if not EXACT:
        return tl.exp2(difference * LOG2E)
    difference = tl.where(difference < NO_EXP_BELOW, NO_EXP_BELOW, difference)
    power = difference * LOG2E
    rest = tl.fma(difference, LOG2E, -power) + difference * LOG2E_REST
    grown = tl.exp2(power)
    return tl.fma(grown, rest * LN2, grown)


@triton.jit
def inverse_of(total):
    """1 / total to the last bit: it is made once a row, and its error is in every result."""
    if total.dtype == tl.float64:
        return 1.0 / total
    return tl.div_rn(tl.full(total.shape, 1.0, tl.float32), total)


@triton.jit
def still_packed(values):
    """The same values, of which the compiler does not know that it has them in float32 already.

    It would keep the converted ones while programs wait, two registers for two 16-bit values
    where one does.
    """
    if values.dtype.primitive_bitwidth == 16:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [values], dtype=values.dtype, is_pure=False, pack=2
        )
    return values


@triton.jit
def published(words_ptr, row, share, rows, shares, largest, total):
    """Leave one share's maximum and sum of each row for the other shares.

    In float32 both go in one 64-bit word, so that whoever reads it has either nothing (0) or all:
    no fence and no flag. The word is never 0, for a sum of 0 comes with a maximum of -inf.
    """
    place = row.to(tl.int64) * shares + share
    if total.dtype == tl.float64:
        tl.store(words_ptr + 2 * place, largest.to(tl.int64, bitcast=True), mask=row < rows)
        tl.store(words_ptr + 2 * place + 1, total.to(tl.int64, bitcast=True), mask=row < rows)
    else:
        high = largest.to(tl.int32, bitcast=True).to(tl.int64) << 32
        low = total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
        tl.atomic_xchg(words_ptr + place, high | low, mask=row < rows, sem="relaxed")


@triton.jit
def combined(
    words_ptr, row, rows, shares,
    DTYPE: tl.constexpr,
    SHARES: tl.constexpr,
    AXIS: tl.constexpr,
    WAIT: tl.constexpr,
):  # fmt: skip
    """Every share's maximum and sum, shares along AXIS; absent ones are -inf and 0.

    WAIT: read until all are there. The order of the shares, and so the result, is fixed.
    """
    share = tl.arange(0, SHARES)
    if AXIS == 1:
        share = share[None, :]
    else:
        share = share[:, None]
    place = row.to(tl.int64) * shares + share
    there = (row < rows) & (share < shares)
    if tl.float64 == DTYPE:
        largest = tl.load(words_ptr + 2 * place, mask=there, other=0).to(tl.float64, bitcast=True)
        total = tl.load(words_ptr + 2 * place + 1, mask=there, other=0)
        total = total.to(tl.float64, bitcast=True)
    else:
        word = tl.load(words_ptr + place, mask=there, other=1, volatile=True)
        if WAIT:
            while tl.min(tl.min((word != 0).to(tl.int32), axis=1), axis=0) == 0:
                word = tl.load(words_ptr + place, mask=there, other=1, volatile=True)
        largest = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        total = word.to(tl.int32).to(tl.float32, bitcast=True)
    return tl.where(there, largest, float("-inf")), tl.where(there, total, 0.0)
