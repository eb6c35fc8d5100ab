"""GELU in eager torch: the formulas as they are written down, on any device.

Half types are computed in float32, float64 in float64, and rounded once at the end.
"""

from __future__ import annotations

import math

import torch

__all__ = ["backward", "bias_backward", "bias_forward", "forward"]

FLAT = -40.0
"""Below it gelu and its derivative are 0 in float64 too. Clamping there keeps -inf * 0 away."""

CUBIC = 0.044715
TWO_ROOT = 2.0 * math.sqrt(2.0 / math.pi)


def forward(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(x), in x's dtype and strides."""
    return torch.empty_like(x).copy_(_gelu(_widened(x), approximate))


def backward(grad: torch.Tensor, x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Grad times the derivative at x, in x's dtype and strides."""
    wide = _widened(x)
    return torch.empty_like(x).copy_(grad.to(wide.dtype) * _derivative(wide, approximate))


def bias_forward(x: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(x + bias); the sum is not rounded to x's dtype."""
    wide = _widened(x)
    return torch.empty_like(x).copy_(_gelu(wide + bias.to(wide.dtype), approximate))


def bias_backward(
    grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, approximate: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of x and of bias; bias's is summed in float32 before it is rounded."""
    wide = _widened(x)
    dz = grad.to(wide.dtype) * _derivative(wide + bias.to(wide.dtype), approximate)
    dbias = dz.reshape(-1, bias.numel()).sum(0)
    return torch.empty_like(x).copy_(dz), dbias.to(bias.dtype)


def _widened(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def _gelu(z: torch.Tensor, approximate: str) -> torch.Tensor:
    z = z.clamp(min=FLAT)
    if approximate == "tanh":
        # 0.5 * (1 + tanh(u)) is sigmoid(2u), which cancels nothing where u is far below 0
        return z * torch.sigmoid(TWO_ROOT * (z + CUBIC * z**3))
    return 0.5 * z * torch.special.erfc(-math.sqrt(0.5) * z)


def _derivative(z: torch.Tensor, approximate: str) -> torch.Tensor:
    z = z.clamp(min=FLAT, max=-FLAT)
    if approximate == "tanh":
        s = torch.sigmoid(TWO_ROOT * (z + CUBIC * z**3))
        return s + z * s * (1.0 - s) * TWO_ROOT * (1.0 + 3.0 * CUBIC * z**2)
    density = torch.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    return 0.5 * torch.special.erfc(-math.sqrt(0.5) * z) + z * density
