"""Softmax forward in Triton: each element is read once and written once.

A tile of rows lies in registers. A row too long for one program is split into shares: each
program keeps its share, tells the others its maximum and sum, and scales what it kept. So a row
of 131,072 columns costs the same two streams as a short one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainscope_kernels.softmax.launch import launch_of, run_on
from trainscope_kernels.softmax.plan import forward_plan
from trainscope_kernels.softmax.triton_pieces import (
    combined,
    exp_of_difference,
    published,
    result_rows,
    source_rows,
    where_am_i,
)

__all__ = ["softmax_forward", "softmax_forward_kernel"]


@triton.jit(do_not_specialize=["rows", "columns", "shares"])
def softmax_forward_kernel(
    x_ptr, y_ptr, words_ptr, ticket_ptr,
    rows, columns, inner, shares, column_stride,
    stride0, stride1, stride2, stride3, size1, size2, size3,
    LEVELS: tl.constexpr,
    UNIT: tl.constexpr,
    LAST: tl.constexpr,
    WIDE: tl.constexpr,
    STAGE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SHARES: tl.constexpr,
):  # fmt: skip
    """One tile of ROWS rows by COLUMNS columns, which lie along AXIS."""
    AXIS: tl.constexpr = 1 if LAST else 0
    DTYPE: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    EXACT: tl.constexpr = y_ptr.dtype.element_ty == tl.float32
    tile, share = where_am_i(ticket_ptr, shares, STAGE == "together", WIDE)
    row = tile * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    if LAST:
        row, column = row[:, None], column[None, :]
    else:
        row, column = row[None, :], column[:, None]
    column += share * COLUMNS
    live = (row < rows) & (column < columns * UNIT)
    x_row = source_rows(row, stride0, stride1, stride2, stride3, size1, size2, size3, LEVELS, UNIT)
    if WIDE:
        column = column.to(tl.int64)
    x = tl.load(x_ptr + x_row + column * column_stride, mask=live, other=float("-inf")).to(DTYPE)

    largest = tl.max(x, axis=AXIS, keep_dims=True)
    if STAGE == "finish":
        # the sum is known to the others too; only the values are made again
        kept, kept_largest = x, largest
    else:
        kept_largest = tl.where(largest == float("-inf"), 0.0, largest)
        kept = exp_of_difference(x - kept_largest, EXACT)
        total = tl.sum(kept, axis=AXIS, keep_dims=True)
        if STAGE != "whole":
            published(words_ptr, row, share, rows, shares, largest, total)
    if STAGE != "publish":
        if STAGE == "whole":
            y = kept * (1.0 / total)
        else:
            each, each_total = combined(
                words_ptr, row, rows, shares, DTYPE, SHARES, AXIS, STAGE == "together"
            )
            # a NaN is no maximum, but it is in its share's sum and so in every result
            top = tl.max(each, axis=AXIS, keep_dims=True)
            top = tl.where(top == float("-inf"), 0.0, top)
            sum_of_all = tl.sum(
                each_total * exp_of_difference(each - top, EXACT), axis=AXIS, keep_dims=True
            )
            if STAGE == "finish":
                y = exp_of_difference(kept - top, EXACT) * (1.0 / sum_of_all)
            else:
                y = kept * (exp_of_difference(kept_largest - top, EXACT) / sum_of_all)
        y_row = result_rows(row, columns, inner, LAST, UNIT)
        tl.store(y_ptr + y_row + column * inner, y.to(y_ptr.dtype.element_ty), mask=live)


def softmax_forward(x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Softmax of ``x`` along ``dim`` (from 0), contiguous and of ``dtype``; any strides."""
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    if x.numel() == 0:
        return y
    launch = launch_of(x.shape, x.stride(), dim, x.itemsize, x.is_cuda, forward_plan)
    if launch is None:
        return softmax_forward(x.contiguous(), dim, dtype)
    run_on(x.device, softmax_forward_kernel, launch, (x, y))
    return y
