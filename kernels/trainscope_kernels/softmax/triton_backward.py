"""Softmax backward in Triton: dx = y * (dy - sum(y * dy)), two streams read and one written.

Both operands stay in registers as they were stored; rows too long for one program are split
into shares and read twice, as in the forward kernel.
"""

# pyright: reportGeneralTypeIssues=false
# (what Triton adds to numbers that are not known before the launch is not in its types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainscope_kernels.softmax.launch import launch_of, run_on
from trainscope_kernels.softmax.plan import backward_plan
from trainscope_kernels.softmax.triton_places import (
    program_number,
    result_rows,
    source_rows,
    tile_of,
)
from trainscope_kernels.softmax.triton_shares import combined, published, still_packed

__all__ = ["softmax_backward", "softmax_backward_kernel"]


@triton.jit(do_not_specialize=["columns", "shares"])
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, numbers_ptr,
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
    """One tile of ROWS rows by COLUMNS columns; the strides are those of dy, y is contiguous.

    STAGE: as in the forward kernel.
    """
    DTYPE = tl.float64 if y_ptr.dtype.element_ty == tl.float64 else tl.float32
    row, column, share, live = tile_of(
        program_number(WIDE), rows, columns, shares, UNIT, AXIS, WIDE, ROWS, COLUMNS
    )
    dy_row = source_rows(row, stride0, stride1, stride2, stride3, size1, size2, size3, LEVELS, UNIT)
    y_row = result_rows(row, columns, inner, AXIS == 1, UNIT)
    y = tl.load(y_ptr + y_row + column * inner, mask=live, other=0.0)
    dy = tl.load(dy_ptr + dy_row + column * column_stride, mask=live, other=0.0)

    if STAGE != "finish":
        dot = tl.sum(y.to(DTYPE) * dy.to(DTYPE), axis=AXIS, keep_dims=True)
        # below, the compiler has registers to spare
        if ROWS == 1 and COLUMNS >= 4096:
            y, dy = still_packed(y), still_packed(dy)
    if STAGE == "publish":
        published(numbers_ptr, row, share, rows, shares, tl.zeros(dot.shape, DTYPE), dot)
    if STAGE == "finish":
        _, each = combined(numbers_ptr, row, rows, shares, SHARES, AXIS)
        dot = tl.sum(each, axis=AXIS, keep_dims=True)
    if STAGE != "publish":
        dx = y.to(DTYPE) * (dy.to(DTYPE) - dot)
        tl.store(dx_ptr + y_row + column * inner, dx.to(dx_ptr.dtype.element_ty), mask=live)


def softmax_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """The gradient of the softmax whose result was ``y``, contiguous and of ``dtype``.

    dy: any strides; y: copied where it is not contiguous, which a result of ours always is.
    """
    dx = torch.empty_like(y, dtype=dtype, memory_format=torch.contiguous_format)
    if y.numel() == 0:
        return dx
    y = y.contiguous()
    device = y.device
    launch = launch_of(dy.shape, dy.stride(), dim, y.itemsize, backward_plan)
    if launch is None:
        return softmax_backward(dy.contiguous(), y, dim, dtype)
    run_on(device, softmax_backward_kernel, launch, (dy, y, dx))
    return dx
