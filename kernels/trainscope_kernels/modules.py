"""The ops as modules, with the arguments of torch's own modules of the same name."""

from __future__ import annotations

import torch

from trainscope_kernels.gelu import gelu
from trainscope_kernels.softmax import softmax

__all__ = ["GELU", "Softmax"]


class GELU(torch.nn.Module):
    """``torch.nn.GELU`` through ``trainscope_kernels.gelu``; impl as there."""

    def __init__(self, approximate: str = "none", *, impl: str = "auto") -> None:
        super().__init__()
        self.approximate = approximate
        self.impl = impl

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """GELU of every element of x."""
        return gelu(x, self.approximate, impl=self.impl)

    def extra_repr(self) -> str:
        """The arguments, as ``repr`` of the module shows them."""
        return f"approximate={self.approximate!r}, impl={self.impl!r}"


class Softmax(torch.nn.Module):
    """``torch.nn.Softmax`` through ``trainscope_kernels.softmax``; impl as there."""

    def __init__(self, dim: int = -1, *, impl: str = "auto") -> None:
        super().__init__()
        self.dim = dim
        self.impl = impl

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Softmax of x along ``dim``."""
        return softmax(x, self.dim, impl=self.impl)

    def extra_repr(self) -> str:
        """The arguments, as ``repr`` of the module shows them."""
        return f"dim={self.dim}, impl={self.impl!r}"
