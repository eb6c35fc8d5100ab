"""What the attention launchers share: a call's settings, and a launch that is found again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton.language as tl

from trainscope_kernels.attention.masking import Band
from trainscope_kernels.attention.tile_sizes import padded

__all__ = ["NO_STRIDES", "Call", "Launch", "flags", "start", "tile_count"]

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


class Launch(NamedTuple):
    """All that follows from shapes, strides and settings: worked out once for each of them.

    numbers: the kernel's arguments after its tensors; constants: its compile-time settings.
    """

    programs: int
    numbers: tuple[Any, ...]
    constants: dict[str, Any]
    warps: int
    stages: int


Tensors = tuple[torch.Tensor | None, ...]
_ready: dict[Any, tuple[Callable[..., None], tuple[Any, ...]]] = {}
MOST_READY = 4096
"""Shapes remembered; a program with ever new lengths starts anew, rather than growing for ever."""


def start(kernel: Any, tensors: Tensors, settings: Any, plan: Callable[[], Launch]) -> None:
    """Launch ``kernel`` on the current stream of the tensors' device.

    plan is asked only for tensors of a new kind (shapes, strides, dtypes) or new settings. For
    a known kind the compiled kernel is called outright: Triton itself would look at each of 40
    arguments to find it. That holds where all addresses are multiples of 16, as compiled for;
    other tensors go through Triton each time.
    """
    first = tensors[0]
    assert first is not None
    if first.is_cuda and first.device.index != torch.cuda.current_device():
        with torch.cuda.device(first.device):
            return start(kernel, tensors, settings, plan)
    key: list[Any] = [kernel.fn, settings, first.device.index]
    addresses = 0
    for each in tensors:
        if each is None:
            key.append(None)
        else:
            key += (each.shape, each.stride(), each.dtype)
            addresses |= each.data_ptr()
    if first.dtype == torch.float32:
        key.append(torch.get_float32_matmul_precision())
    found = tuple(key)
    ready = _ready.get(found)
    if ready is not None and addresses % 16 == 0:
        run, rest = ready
        run(*tensors, *rest)
        return None
    programs, numbers, constants, warps, stages = plan()
    compiled = kernel[(programs,)](
        *tensors, *numbers, **constants, num_warps=warps, num_stages=stages
    )
    # the interpreter compiles nothing and returns None
    if compiled is not None and addresses % 16 == 0:
        if len(_ready) >= MOST_READY:
            _ready.clear()
        in_order = tuple(constants[name] for name in kernel.arg_names if name in constants)
        _ready[found] = compiled[(programs, 1, 1)], (*numbers, *in_order)
    return None
