"""Softmax written out in torch operations: the oracle, on any device, in float64 too."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["softmax_backward", "softmax_forward"]


def softmax_forward(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """exp(x - max) / sum of exp(x - max) along ``dim``; contiguous, of ``dtype`` or x's.

    16-bit values are computed in float32. A row with +inf or NaN, or of -inf alone, is NaN.
    """
    wide = x.to(_computed_in(x.dtype))
    if x.numel() == 0:
        return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    largest = wide.amax(dim, keepdim=True)
    grown = (wide - largest).exp()
    return (grown / grown.sum(dim, keepdim=True)).to(dtype or x.dtype).contiguous()


def softmax_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """dx = y * (dy - sum(y * dy)) along ``dim``; contiguous, of ``dtype`` or y's."""
    wide_y, wide_dy = y.to(_computed_in(y.dtype)), dy.to(_computed_in(dy.dtype))
    dot = (wide_y * wide_dy).sum(dim, keepdim=True)
    return (wide_y * (wide_dy - dot)).to(dtype or y.dtype).contiguous()


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
