"""How the shares of a row that is too long for one program tell one another their part of it.

A first launch leaves each share's maximum and sum, a second one reads those of the whole row and
reads the row again. The order of the shares, and so the result, is fixed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trainscope_kernels.impls import interpreting

__all__ = ["combined", "published", "still_packed"]

INTERPRETED = tl.constexpr(interpreting())


@triton.jit
def published(numbers_ptr, row, share, rows, shares, largest, total):
    """Leave one share's maximum and sum of each row."""
    at = numbers_ptr + 2 * (row.to(tl.int64) * shares + share)
    tl.store(at, largest, mask=row < rows)
    tl.store(at + 1, total, mask=row < rows)


@triton.jit
def combined(numbers_ptr, row, rows, shares, SHARES: tl.constexpr, AXIS: tl.constexpr):
    """Every share's maximum and sum, shares along AXIS; absent ones are -inf and 0."""
    share = tl.arange(0, SHARES)
    if AXIS == 1:
        share = share[None, :]
    else:
        share = share[:, None]
    at = numbers_ptr + 2 * (row.to(tl.int64) * shares + share)
    there = (row < rows) & (share < shares)
    largest = tl.load(at, mask=there, other=float("-inf"))
    total = tl.load(at + 1, mask=there, other=0.0)
    return largest, total


@triton.jit
def still_packed(values):
    """The same values, of which the compiler does not know that it has them in float32 already.

    It would keep the converted ones while it adds, two registers for two 16-bit values where one
    does. The interpreter, which knows no assembly, has no registers either.
    """
    if values.dtype.primitive_bitwidth == 16 and not INTERPRETED:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [values], dtype=values.dtype, is_pure=False, pack=2
        )
    else:
        return values
