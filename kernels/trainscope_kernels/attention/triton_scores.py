"""Device functions of the attention kernels: what hides a score, and the soft cap.

Scores are tiles of queries by keys or, in the dK/dV kernel, of keys by queries; positions come
in already shaped to broadcast, so each function serves both.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["LOG2E", "add_mask", "block_limits", "in_band", "probability", "soft_tanh"]

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)
"""What models add to scores for -inf, so that a row of nothing else is a mean and no NaN."""


@triton.jit
def block_limits(
    first,
    last,
    length,
    shift,
    before,
    after,
    BLOCK: tl.constexpr,
    HAS_BEFORE: tl.constexpr,
    HAS_AFTER: tl.constexpr,
    ALL_MASKED: tl.constexpr,
):
    """Where the other axis' loop starts, needs no mask, needs one again, and ends.

    Positions first..last on this axis meet i + shift - before .. i + shift + after on the other,
    which has ``length``. All four limits but the last are multiples of BLOCK.
    """
    start = 0
    end = length
    open_start = 0
    open_end = (length // BLOCK) * BLOCK
    if HAS_BEFORE:
        start = (tl.maximum(first + shift - before, 0) // BLOCK) * BLOCK
        open_start = tl.cdiv(tl.maximum(last + shift - before, 0), BLOCK) * BLOCK
    if HAS_AFTER:
        end = tl.minimum(length, tl.maximum(last + shift + after + 1, 0))
        level = tl.maximum(first + shift + after + 1, 0)
        open_end = tl.minimum(open_end, (level // BLOCK) * BLOCK)
    end = tl.maximum(end, start)
    open_start = tl.minimum(tl.maximum(open_start, start), tl.cdiv(end, BLOCK) * BLOCK)
    open_end = tl.maximum(open_end, open_start)
    if ALL_MASKED:
        open_start = start
        open_end = start
    return start, open_start, open_end, end


@triton.jit
def in_band(
    queries,
    keys,
    n_q,
    n_k,
    shift,
    left,
    right,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
):
    """Whether each query sees each key by position; what is past either end sees nothing."""
    visible = (queries < n_q) & (keys < n_k)
    if HAS_RIGHT:
        visible = visible & (keys <= queries + shift + right)
    if HAS_LEFT:
        visible = visible & (keys >= queries + shift - left)
    return visible


@triton.jit
def add_mask(
    logits,
    visible,
    mask,
    queries,
    keys,
    n_q,
    n_k,
    stride_query,
    stride_key,
    ADDITIVE: tl.constexpr,
):
    """Apply the user's mask to logits in log2 units: added, or joined to ``visible``."""
    fits = (queries < n_q) & (keys < n_k)
    places = mask + queries.to(tl.int64) * stride_query + keys.to(tl.int64) * stride_key
    values = tl.load(places, mask=fits, other=0)
    if ADDITIVE:
        values = values.to(logits.dtype)
        lowered = values * LOG2E
        # in log2 units it would be -inf, and hide
        lowered = tl.where((values >= LOWEST) & (lowered < LOWEST), LOWEST, lowered)
        return logits + lowered, visible
    else:
        return logits, visible & (values != 0)


@triton.jit
def probability(s, log2_lse, ADDITIVE: tl.constexpr):
    """exp2(s - log2_lse). Where a mask has added billions to both, one rounding of the LSE is worth
    hundreds: then it is cut at 1, for inf times a gradient of 0 would be NaN in all of dK and dV.
    """
    if ADDITIVE:
        # a NaN stays one
        return tl.exp2(tl.where(s > log2_lse, 0.0, s - log2_lse))
    else:
        return tl.exp2(s - log2_lse)


@triton.jit
def soft_tanh(x):
    """tanh from exp2, without inf / inf at either end; libdevice's cannot be interpreted.

    Near 0 from its series: there 1 - 2 / (1 + 1) leaves no digit of a score far below its cap.
    """
    square = x * x
    near = 1.0 + square * (-1.0 / 3 + square * (2.0 / 15 + square * (-17.0 / 315)))
    far = 1.0 - 2.0 / (1.0 + tl.exp2(x * (2.0 * LOG2E)))
    return tl.where(square < 1.0 / 256, x * near, far)
