"""One call of attention, as every impl gets it: the tensors and settings of the op's schema."""

from __future__ import annotations

from typing import NamedTuple

import torch

from trainscope_kernels.attention.masking import Band

__all__ = ["Call"]


class Call(NamedTuple):
    """What is the same in the forward and the backward, checked, in the schema's order.

    q, k, v: (batch, heads, sequence, dim) as in flash_attention. mask: expanded to (batch, heads,
    queries, keys). cu_q, cu_k: both or neither; the rows of packed sequences, which are one batch
    and have no mask. softcap: 0 is none. left, right, from_end: see Band.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None
    cu_q: torch.Tensor | None
    cu_k: torch.Tensor | None
    scale: float
    softcap: float
    left: int
    right: int
    from_end: bool

    @property
    def band(self) -> Band:
        """Which keys each query sees by position."""
        return Band(self.left, self.right, self.from_end)
