"""GELU in eager torch: the formulas as they are written down, on any device.

Half types are computed in float32, float64 in float64, and rounded once at the end. Tensors lie
as ``run.py`` says; the results go into ``y`` and ``dx``.
"""

from __future__ import annotations

import math

import torch

__all__ = ["backward", "bias_backward", "bias_forward", "forward"]

FLAT = -40.0
"""Below it gelu and its derivative are 0 in float64 too. Clamping there keeps -inf * 0 away."""

CUBIC = 0.044715
TWO_ROOT = 2.0 * math.sqrt(2.0 / math.pi)


def forward(x: torch.Tensor, y: torch.Tensor, approximate: str) -> None:
    """y = gelu(x); they may be the same tensor."""
    y.copy_(_gelu(_widened(x), approximate))


def backward(grad: torch.Tensor, x: torch.Tensor, dx: torch.Tensor, approximate: str) -> None:
    """dx = grad times the derivative at x; x and dx may be the same tensor."""
    wide = _widened(x)
    dx.copy_(grad.to(wide.dtype) * _derivative(wide, approximate))


def bias_forward(x: torch.Tensor, bias: torch.Tensor, y: torch.Tensor, approximate: str) -> None:
    """y = gelu(x + bias), the sum not rounded to x's dtype. x, y: (..., features), contiguous."""
    wide = _widened(x)
    y.copy_(_gelu(wide + bias.to(wide.dtype), approximate))


def bias_backward(
    grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, dx: torch.Tensor, approximate: str
) -> torch.Tensor:
    """Write x's gradient into dx; returns bias's, (features,), in float32 (float64 for float64)."""
    wide = _widened(x)
    dz = grad.to(wide.dtype) * _derivative(wide + bias.to(wide.dtype), approximate)
    dx.copy_(dz)
    return dz.reshape(-1, bias.numel()).sum(0)


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
