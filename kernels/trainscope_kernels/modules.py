"""The ops as modules, with the arguments of torch's own modules of the same name."""

from __future__ import annotations

import torch

from trainscope_kernels.attention import flash_attention
from trainscope_kernels.gelu import gelu
from trainscope_kernels.softmax import softmax

__all__ = ["GELU", "Attention", "Softmax"]


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
    """``torch.nn.Softmax`` through ``trainscope_kernels.softmax``, by default along the last dim.

    impl as there.
    """

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


class Attention(torch.nn.Module):
    """``trainscope_kernels.flash_attention`` with its settings kept; no parameters, no dropout."""

    def __init__(
        self,
        *,
        causal: str | bool | None = None,
        scale: float | None = None,
        window: tuple[int, int] | None = None,
        softcap: float | None = None,
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.causal = causal
        self.scale = scale
        self.window = window
        self.softcap = softcap
        self.impl = impl

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention of q over k and v, in q's dtype: (batch, heads, queries, value_dim).

        q: (batch, heads, queries, head_dim). k: (batch, kv_heads, keys, head_dim). v: (batch,
        kv_heads, keys, value_dim). mask: boolean (True takes part) or added to the scores.
        """
        return flash_attention(
            q,
            k,
            v,
            causal=self.causal,
            scale=self.scale,
            window=self.window,
            softcap=self.softcap,
            mask=mask,
            impl=self.impl,
        )

    def extra_repr(self) -> str:
        """The arguments, as ``repr`` of the module shows them."""
        return (
            f"causal={self.causal!r}, scale={self.scale!r}, window={self.window!r}, "
            f"softcap={self.softcap!r}, impl={self.impl!r}"
        )
