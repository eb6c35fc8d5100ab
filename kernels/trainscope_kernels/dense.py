"""Which tensors the ops take at all, whatever their dtype and shape."""

from __future__ import annotations

import torch

from trainscope_kernels.errors import ArgumentError

__all__ = ["check_dense"]


def check_dense(name: str, x: torch.Tensor) -> None:
    """Raise for what is no tensor, and for one whose elements do not lie by shape and strides.

    Asked first: of a nested tensor even the shape cannot be asked.
    """
    if not isinstance(x, torch.Tensor):
        raise ArgumentError(f"{name} must be a tensor, got {type(x).__name__}")
    if x.is_nested:
        raise ArgumentError(
            f"{name} is a nested tensor; only dense tensors are taken: use "
            f"{name}.to_padded_tensor(0.0) or {name}.values()"
        )
    if x.layout is not torch.strided:
        raise ArgumentError(
            f"{name} has layout {x.layout}; only strided tensors: use {name}.to_dense()"
        )
