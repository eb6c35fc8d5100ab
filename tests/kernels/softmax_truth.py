"""Softmax in float64, and how far from it a result may be: twice as far as torch's own."""

from __future__ import annotations

import torch

IMPLS = ["reference", "triton"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTERPRETED = not torch.cuda.is_available()


def softmax64(x: torch.Tensor, dim: int) -> torch.Tensor:
    # along the last dim torch adds in a tree; along another one after another, and so less exactly
    return torch.softmax(x.double().movedim(dim, -1).contiguous(), -1).movedim(-1, dim)


def gradient64(dy: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    y = softmax64(x, dim)
    return y * (dy.double() - (y * dy.double()).sum(dim, keepdim=True))


def assert_as_good_as_torch(
    ours: torch.Tensor, torchs: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype
) -> None:
    """Error at most twice that of torch's result in ``dtype``, or a few roundings of the largest.

    Triton's interpreter cuts bfloat16 off where a GPU rounds, so it has twice the error again.
    """
    assert ours.shape == exact.shape
    # float64 is its own truth: what differs there is the order of a sum
    roundings = {torch.float64: 8.0, torch.float32: 2.0}.get(dtype, 0.5)
    if INTERPRETED and dtype == torch.bfloat16:
        roundings = 1.0
    floor = roundings * torch.finfo(dtype).eps * exact.abs().max().item()
    error = (ours.double() - exact).abs().max().item()
    allowed = 2.0 * (torchs.double() - exact).abs().max().item() + floor
    assert error <= allowed, f"off by {error:.3g}, allowed is {allowed:.3g}"
