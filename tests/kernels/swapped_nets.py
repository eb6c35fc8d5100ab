"""A model with one of each call that ``swap`` replaces, and which of the kernels a run reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["ALL", "Small", "ops_of", "small_input"]

ALL = ["flash_attention", "gelu", "gelu", "softmax_forward"]
"""What a swapped ``Small`` runs."""


class Small(nn.Module):
    """A linear layer, then attention, GELU as a module and as a call, softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.act = nn.GELU(approximate="tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.project(x).view(2, 2, 5, 4)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return F.softmax(F.gelu(self.act(mixed.reshape(2, 5, 8))), dim=-1)


def small_input() -> torch.Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def ops_of(call: Callable[..., Any], *arguments: Any) -> list[str]:
    """Each op of ours that one call dispatches."""
    names: list[str] = []

    class Heard(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == "trainscope_kernels":
                names.append(func._opname)
            return func(*args, **(kwargs or {}))

    with Heard():
        call(*arguments)
    return names
