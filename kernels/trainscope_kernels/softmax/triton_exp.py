"""exp and 1 / x as a softmax needs them: exact where float32 is stored, else fast."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["exp_of_difference", "inverse_of"]

LOG2E = tl.constexpr(1.4426950216293335)
"""log2(e) rounded to float32; LOG2E_REST is what that left out."""
LOG2E_REST = tl.constexpr(1.92596298909109e-08)
LN2 = tl.constexpr(0.6931471805599453)
NO_EXP_BELOW = tl.constexpr(-150.0)
"""exp of it is 0 in float32, and its product with LOG2E is finite."""


@triton.jit
def exp_of_difference(difference, EXACT: tl.constexpr):
    """Exp of values that are at most 0, -inf or NaN; EXACT where float32 is stored.

    One product rounds log2(e) * difference to float32, which costs 7e-6 relative at -87; what the
    rounding left out is put back to first order.
    """
    if difference.dtype == tl.float64:
        return tl.exp(difference)
    elif not EXACT:
        return tl.exp2(difference * LOG2E)
    else:
        difference = tl.where(difference < NO_EXP_BELOW, NO_EXP_BELOW, difference)
        power = difference * LOG2E
        rest = tl.fma(difference, LOG2E, -power) + difference * LOG2E_REST
        grown = tl.exp2(power)
        return tl.fma(grown, rest * LN2, grown)


@triton.jit
def inverse_of(total):
    """1 / total to the last bit: it is made once a row, and its error is in every result."""
    # with an else: what follows a return is compiled too, and div_rn takes no float64
    if total.dtype == tl.float64:
        return 1.0 / total
    else:
        return tl.div_rn(tl.full(total.shape, 1.0, tl.float32), total)
