"""What the attention launchers share: the settings of a call as the kernels take them."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch
import triton.language as tl

from trainscope_kernels.attention.masking import Band
from trainscope_kernels.attention.tile_sizes import padded

__all__ = ["NO_STRIDES", "Call", "current_device", "flags", "tile_count"]

NO_STRIDES = (0, 0, 0, 0)
WIDEST_NARROW_STRIDE = 2**22
"""A tile is 256 wide at most: up to this stride its inner offsets stay under 2**30."""


class Call(NamedTuple):
    """What is the same in the forward and the backward of one call."""

    mask: torch.Tensor | None
    cu_q: torch.Tensor | None
    cu_k: torch.Tensor | None
    scale: float
    softcap: float
    band: Band


def tile_count(length: int, block: int, cu_seqlens: torch.Tensor | None) -> int:
    """Tiles along a sequence; for packed sequences an upper bound known without reading them."""
    if cu_seqlens is None:
        return -(-length // block)
    return length // block + cu_seqlens.shape[0] - 1


def flags(call: Call, *tensors: torch.Tensor) -> dict[str, Any]:
    """The compile-time settings that every kernel of the call takes."""
    q, _, v = tensors[:3]
    mask, band = call.mask, call.band
    wide = tl.float64 if q.dtype == torch.float64 else tl.float32
    narrow = max(max(each.stride()) for each in tensors) <= WIDEST_NARROW_STRIDE
    return {
        "VARLEN": call.cu_q is not None,
        "MASK": "none" if mask is None else "hide" if mask.dtype == torch.bool else "add",
        "SOFTCAP": call.softcap > 0,
        "HAS_LEFT": band.left >= 0,
        "HAS_RIGHT": band.right >= 0,
        "FROM_END": band.from_end,
        "DIM": q.shape[3],
        "VALUE_DIM": v.shape[3],
        "BLOCK_DIM": padded(q.shape[3]),
        "BLOCK_VALUE": padded(v.shape[3]),
        "OFFSET": tl.int32 if narrow else tl.int64,
        "WIDE": wide,
        "PRECISION": _dot_precision(q.dtype, max(q.shape[3], v.shape[3])),
    }


def _dot_precision(dtype: torch.dtype, dim: int) -> str:
    """For float32 what ``torch.set_float32_matmul_precision`` says; else it makes no difference.

    Three tf32 products are as good as one in float32 and run on the tensor cores; beyond a head
    dim of 128 their operands fit neither registers nor shared memory.
    """
    if dtype != torch.float32:
        return "tf32"
    if torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return "tf32x3" if dim <= 128 else "ieee"


def current_device(x: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """Makes the tensor's GPU the current one, where it is not: Triton launches on the current."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)
