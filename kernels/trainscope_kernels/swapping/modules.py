"""What ``swap`` puts in the place of torch's modules: theirs where these kernels do not take it."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from trainscope_kernels import modules
from trainscope_kernels.swapping.calls import REPLACED

__all__ = ["GELU", "Softmax"]


class GELU(modules.GELU):
    """``trainscope_kernels.GELU`` that leaves to torch what a swapped call of F.gelu leaves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """GELU of every element of x."""
        return REPLACED[F.gelu](F.gelu, self.impl, x, self.approximate)


class Softmax(modules.Softmax):
    """``trainscope_kernels.Softmax`` that leaves to torch what a swapped call leaves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Softmax of x along ``dim``."""
        return REPLACED[F.softmax](F.softmax, self.impl, x, self.dim)
