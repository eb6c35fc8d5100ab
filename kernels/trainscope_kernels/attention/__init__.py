"""FlashAttention: softmax attention whose memory grows with the sequence, not with its square."""

from trainscope_kernels.attention.op import flash_attention
from trainscope_kernels.attention.varlen import flash_attention_varlen

__all__ = ["flash_attention", "flash_attention_varlen"]
