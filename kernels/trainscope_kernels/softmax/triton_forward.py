"""Softmax forward in Triton: each element is read once and written once.

A tile of rows lies in registers. A row too long for one program is split into shares, and read a
second time once the whole row's sum is known.
"""

# pyright: reportGeneralTypeIssues=false
# (what Triton adds to numbers that are not known before the launch is not in its types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainscope_kernels.repeats import Again
from trainscope_kernels.softmax.launch import again_of, launch_of, run_on
from trainscope_kernels.softmax.plan import forward_plan
from trainscope_kernels.softmax.triton_exp import exp_of_difference, inverse_of
from trainscope_kernels.softmax.triton_places import (
    program_number,
    result_rows,
    source_rows,
    tile_of,
)
from trainscope_kernels.softmax.triton_shares import combined, published

__all__ = ["softmax_forward", "softmax_forward_again", "softmax_forward_kernel"]


@triton.jit(do_not_specialize=["columns", "shares"])
def softmax_forward_kernel(
    x_ptr, y_ptr, numbers_ptr,
    rows, columns, inner, shares, column_stride,
    stride0, stride1, stride2, stride3, size1, size2, size3,
    LEVELS: tl.constexpr,
    UNIT: tl.constexpr,
    AXIS: tl.constexpr,
    WIDE: tl.constexpr,
    STAGE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SHARES: tl.constexpr,
):  # fmt: skip
    """One tile of ROWS rows by COLUMNS columns, which lie along AXIS.

    STAGE: "whole" where a row has one share; else "publish" and then "finish", two launches.
    """
    DTYPE = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    EXACT: tl.constexpr = y_ptr.dtype.element_ty == tl.float32
    row, column, share, live = tile_of(
        program_number(WIDE), rows, columns, shares, UNIT, AXIS, WIDE, ROWS, COLUMNS
    )
    x_row = source_rows(row, stride0, stride1, stride2, stride3, size1, size2, size3, LEVELS, UNIT)
    x = tl.load(x_ptr + x_row + column * column_stride, mask=live, other=float("-inf"))

    if STAGE != "finish":
        largest = tl.max(x.to(DTYPE), axis=AXIS, keep_dims=True)
        # a share of -inf alone has no part in the sum; inf - inf would make it NaN
        base = tl.where(largest == float("-inf"), 0.0, largest)
        grown = exp_of_difference(x.to(DTYPE) - base, EXACT)
        total = tl.sum(grown, axis=AXIS, keep_dims=True)
    if STAGE == "publish":
        published(numbers_ptr, row, share, rows, shares, largest, total)
    if STAGE == "finish":
        each, each_total = combined(numbers_ptr, row, rows, shares, SHARES, AXIS)
        # a NaN is no maximum, but it is in its share's sum and so in every result
        top = tl.max(each, axis=AXIS, keep_dims=True)
        top = tl.where(top == float("-inf"), 0.0, top)
        each_total *= exp_of_difference(each - top, EXACT)
        total = tl.sum(each_total, axis=AXIS, keep_dims=True)
    if STAGE != "publish":
        if STAGE == "whole":
            y = grown * inverse_of(total)
        else:
            y = exp_of_difference(x.to(DTYPE) - top, EXACT) * inverse_of(total)
        y_row = result_rows(row, columns, inner, AXIS == 1, UNIT)
        tl.store(y_ptr + y_row + column * inner, y.to(y_ptr.dtype.element_ty), mask=live)


def softmax_forward(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """Softmax of ``x`` along ``dim`` (from 0), contiguous and of ``dtype``; any strides."""
    y = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    if x.numel() == 0:
        return y
    device = x.device
    launch = launch_of(x.shape, x.stride(), dim, x.itemsize, forward_plan)
    if launch is None:
        return softmax_forward(x.contiguous(), dim, dtype)
    run_on(device, softmax_forward_kernel, launch, (x, y))
    return y


def softmax_forward_again(x: Tensor, dim: int, dtype: torch.dtype | None) -> Again | None:
    """What does ``softmax_forward`` of other tensors like x; None where each is looked at."""
    if x.numel() == 0:
        return None
    launch = launch_of(x.shape, x.stride(), dim, x.itemsize, forward_plan)
    return None if launch is None else again_of(softmax_forward_kernel, launch, x, dtype)
