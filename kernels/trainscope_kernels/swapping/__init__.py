"""``swap(model)``: the model's own GELU, softmax and attention through these kernels."""

from trainscope_kernels.swapping.swap import swap

__all__ = ["swap"]
