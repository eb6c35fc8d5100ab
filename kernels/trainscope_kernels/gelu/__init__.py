"""GELU and bias + GELU, exact and tanh, forward and backward."""

from __future__ import annotations

from trainscope_kernels.gelu.op import bias_gelu, gelu

__all__ = ["bias_gelu", "gelu"]
