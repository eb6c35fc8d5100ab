"""GELU in float64, and how far a rounded result may be from it."""

from __future__ import annotations

import math

import pytest
import torch

FORMS = ("none", "tanh")
HALVES = (torch.bfloat16, torch.float16)

IMPLS = [
    "reference",
    "triton",
    pytest.param("cuda", marks=pytest.mark.gpu),
]


def every_half(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """All 65,536 values of a half type, NaNs and infs included."""
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype).to(device)


def gelu64(x: torch.Tensor, approximate: str) -> torch.Tensor:
    x = x.double().clamp(min=-40.0)
    if approximate == "tanh":
        return x * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * torch.special.erfc(-x / math.sqrt(2.0))


def slope64(x: torch.Tensor, approximate: str) -> torch.Tensor:
    x = x.double().clamp(min=-40.0, max=40.0)
    if approximate == "tanh":
        double_u = 2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
        inner = 2.0 * math.sqrt(2.0 / math.pi) * (1.0 + 3.0 * 0.044715 * x**2)
        return torch.sigmoid(double_u) * (1.0 + x * torch.sigmoid(-double_u) * inner)
    bell = torch.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi)
    return 0.5 * torch.special.erfc(-x / math.sqrt(2.0)) + x * bell


def slope_floor(x: torch.Tensor) -> torch.Tensor:
    """As gelu's, and two last places of float32 next to the slope's root, where it cancels."""
    return torch.where((x.double() + 0.7525).abs() < 0.01, 1.5e-7, 1e-36)


def ulp(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbours of ``dtype`` around each float64 value."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(exact.abs()).exponent.double() - 1.0
    return (info.eps * torch.exp2(exponent)).clamp(min=info.eps * info.tiny)


def ulps_off(
    result: torch.Tensor, exact: torch.Tensor, floor: float | torch.Tensor = 1e-36
) -> torch.Tensor:
    """Errors beyond ``floor`` in ulps of the result's dtype.

    The floor of gelu is documented: what is smaller may come out as 0.
    """
    error = ((result.double() - exact).abs() - floor).clamp(min=0.0)
    return error / ulp(exact, result.dtype)
