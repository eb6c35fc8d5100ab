"""Custom GELU, softmax and FlashAttention kernels: not yet here; this release ships none."""

__all__: list[str] = []
