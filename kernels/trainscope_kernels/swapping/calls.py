"""The functions of torch that a swapped model's calls reach, and when they are left to torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from trainscope_kernels.attention import flash_attention
from trainscope_kernels.gelu import gelu
from trainscope_kernels.softmax import softmax

__all__ = ["REPLACED", "instead_of"]

HALVES_AND_FLOAT = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD_DIM = 256
PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
"""A subclass (DTensor, a quantized weight, a causal bias) means more than its values."""
_C: Any = torch._C
_transform = _C._functorch.peek_interpreter_stack


def instead_of(func: Callable[..., Any], impl: str) -> Callable[..., Any] | None:
    """What to call instead of ``func``; None for a function that is not replaced.

    It gives the call to ``func`` where these kernels do not take it: on a device without them
    (unless ``impl`` names one), another dtype, dropout, a mask that wants a gradient, a subclass
    of tensors, a transform of torch.func, forward-mode differentiation.
    """
    replacement = REPLACED.get(func)
    if replacement is None:
        return None

    def call(*arguments: Any, **named: Any) -> Any:
        return replacement(func, impl, *arguments, **named)

    return call


def _gelu(func: Callable[..., Any], impl: str, input: Any, approximate: str = "none") -> Any:
    if not _is_taken(input, impl):
        return func(input, approximate=approximate)
    return gelu(input, approximate, impl=impl)


def _softmax(
    func: Callable[..., Any], impl: str, input: Any, dim: Any = None, *rest: Any, **named: Any
) -> Any:
    # F.softmax has _stacklevel third and dtype fourth, torch.softmax has dtype third
    dtype = named.get("dtype", rest[-1] if rest and isinstance(rest[-1], torch.dtype) else None)
    if not isinstance(dim, int) or "out" in named or not _is_taken(input, impl):
        return func(input, dim, *rest, **named)
    if dtype is not None and dtype not in HALVES_AND_FLOAT:
        return func(input, dim, *rest, **named)
    return softmax(input, dim, dtype=dtype, impl=impl)


def _attention(
    func: Callable[..., Any],
    impl: str,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    tensors = (query, key, value)
    taken = all(_is_taken(each, impl) and each.dim() == 4 for each in tensors)
    taken = taken and query.dtype == key.dtype == value.dtype
    taken = taken and _go_together(query.shape, key.shape, value.shape, enable_gqa)
    if scale is not None:
        # torch takes a tensor too, and reads its value
        taken = taken and isinstance(scale, (int, float)) and -math.inf < scale < math.inf
    if attn_mask is not None:
        taken = taken and type(attn_mask) in PLAIN
        taken = taken and not attn_mask.requires_grad and not is_causal
    if not taken or dropout_p != 0.0:
        return func(
            *tensors,
            attn_mask=attn_mask,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
    causal = "top-left" if is_causal else None
    return flash_attention(*tensors, causal=causal, scale=scale, mask=attn_mask, impl=impl)


def _go_together(q: torch.Size, k: torch.Size, v: torch.Size, enable_gqa: bool) -> bool:
    """Whether flash_attention takes the shapes; torch broadcasts others, or says what is wrong."""
    heads = k[1] == q[1] or (enable_gqa and k[1] > 0 and q[1] % k[1] == 0)
    dims = 0 < q[3] <= LARGEST_HEAD_DIM and 0 < v[3] <= LARGEST_HEAD_DIM
    return heads and dims and q[0] == k[0] and q[3] == k[3] and k[:3] == v[:3]


def _is_taken(x: Any, impl: str) -> bool:
    """A plain tensor of a dtype that is faster here, where kernels run, or anywhere by name."""
    if type(x) not in PLAIN or x.layout != torch.strided or x.is_nested:
        return False
    if x.dtype not in HALVES_AND_FLOAT or not (x.is_cuda or impl != "auto"):
        return False
    return torch.compiler.is_compiling() or (_transform() is None and forward_ad._current_level < 0)


REPLACED: dict[Callable[..., Any], Callable[..., Any]] = {
    F.gelu: _gelu,
    F.softmax: _softmax,
    torch.softmax: _softmax,
    torch.Tensor.softmax: _softmax,
    F.scaled_dot_product_attention: _attention,
}
