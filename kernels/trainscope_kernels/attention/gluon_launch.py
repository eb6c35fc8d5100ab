"""The launches of Gluon attention, both ways; importing this imports Triton."""

from __future__ import annotations

from trainscope_kernels.attention.gluon_backward_launch import backward
from trainscope_kernels.attention.gluon_forward_launch import forward, forward_again, is_scheduled

__all__ = ["backward", "forward", "forward_again", "is_scheduled"]
