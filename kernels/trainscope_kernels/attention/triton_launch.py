"""What the attention launchers share: a launch worked out from the call, and found again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton.language as tl

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.tile_sizes import Tile, padded
from trainscope_kernels.attention.triton_meta import meta
from trainscope_kernels.triton_start import FUSED, Start, compiled_start, starter

__all__ = ["Launch", "kind_of", "planned", "start", "start_of", "tile_count"]

NO_STRIDES = (0, 0, 0, 0)
WIDEST_NARROW_STRIDE = 2**22
"""A tile is 256 wide at most: up to this stride its inner offsets stay under 2**30."""


class Launch(NamedTuple):
    """All that follows from shapes, strides and settings: worked out once for each of them.

    numbers: the kernel's arguments after its tensors; constants: its compile-time settings.
    """

    programs: int
    numbers: tuple[Any, ...]
    constants: dict[str, Any]
    warps: int
    stages: int


def tile_count(length: int, block: int, cu_seqlens: torch.Tensor | None) -> int:
    """Tiles along a sequence; for packed sequences an upper bound known without reading them."""
    if cu_seqlens is None:
        return -(-length // block)
    sequences = cu_seqlens.shape[0] - 1
    return length // block + sequences if sequences else 0


def planned(
    call: Call,
    made: tuple[torch.Tensor, ...],
    tile: Tile,
    heads: int,
    tiles: int,
    *,
    ragged: bool,
    fold: bool = False,
) -> Launch:
    """The launch of one of the kernels that multiply, whose arguments have one order.

    made: the tensors whose strides follow the mask's. heads, tiles: a batch has so many heads, a
    head so many tiles, and each tile is a program. ragged, fold: see Meta.
    """
    q, k, v, mask, cu_q, _, scale, softcap, left, right, from_end = call
    strides = (q.stride(), k.stride(), v.stride(), NO_STRIDES if mask is None else mask.stride())
    others = tuple(each.stride() for each in made)
    instances = q.shape[0] * heads
    widest = max(max(each) for each in (*strides[:3], *others))
    dim, value_dim = q.shape[3], v.shape[3]
    return Launch(
        tiles * instances,
        (
            *strides,
            *others,
            q.shape[2],
            k.shape[2],
            heads,
            q.shape[1] // k.shape[1],
            instances,
            tiles,
            0 if cu_q is None else cu_q.shape[0] - 1,
            1,
            scale,
            softcap,
            left,
            right,
        ),
        {
            "META": meta(
                VARLEN=cu_q is not None,
                MASK="none" if mask is None else "hide" if mask.dtype == torch.bool else "add",
                SOFTCAP=softcap > 0,
                FOLD=fold,
                HAS_LEFT=left >= 0,
                HAS_RIGHT=right >= 0,
                FROM_END=from_end,
                RAGGED=ragged,
                DIM=dim,
                VALUE_DIM=value_dim,
                BLOCK_M=tile.queries,
                BLOCK_N=tile.keys,
                BLOCK_DIM=padded(dim),
                BLOCK_VALUE=padded(value_dim),
                OFFSET=tl.int32 if widest <= WIDEST_NARROW_STRIDE else tl.int64,
                WIDE=tl.float64 if q.dtype == torch.float64 else tl.float32,
                PRECISION=_dot_precision(q.dtype, max(dim, value_dim)),
            )
        },
        tile.warps,
        tile.stages,
    )


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


Tensors = tuple[torch.Tensor | None, ...]
_ready: dict[Any, tuple[Start, int, tuple[Any, ...]]] = {}
MOST_READY = 4096
"""Shapes remembered; a program with ever new lengths starts anew, rather than growing for ever."""


def kind_of(call: Call, *more: Any) -> tuple[Any, ...]:
    """All of a call that a launch follows from, in a form to look it up by.

    more: what else it follows from. What the op makes itself is laid out as q, k and v are (see
    run.py), and so is not part of it.
    """
    q, k, v, mask, cu_q, cu_k = call[:6]
    kind = (
        q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, call[6:], more,
    )  # fmt: skip
    if mask is not None:
        kind += (mask.stride(), mask.dtype)
    if cu_q is not None and cu_k is not None:
        kind += (cu_q.shape, cu_q.dtype, cu_k.dtype)
    if q.dtype is torch.float32:
        kind += (torch.get_float32_matmul_precision(),)
    return kind


def start(kernel: Any, tensors: Tensors, kind: Any, plan: Callable[[], Launch]) -> None:
    """Launch ``kernel`` on the current stream of the tensors' device.

    plan is asked only for a new kind, see kind_of. A known one is started the short way: Triton
    itself would look at each of 40 arguments to find what it compiled. That holds where all
    addresses are multiples of 16, as compiled for; other tensors go through Triton each time.
    """
    first = tensors[0]
    assert first is not None
    index = first.get_device()
    if first.is_cuda and index != torch.cuda.current_device():
        with torch.cuda.device(index):
            return start(kernel, tensors, kind, plan)
    pointers = [None if each is None else each.data_ptr() for each in tensors]
    aligned = not any(each is not None and each % 16 for each in pointers)
    key = (kernel.fn, index, kind)
    ready = _ready.get(key)
    if ready is not None and aligned:
        start_compiled, programs, rest = ready
        start_compiled(programs, pointers, rest)
        return None
    launch = plan()
    compiled = kernel[(launch.programs,)](
        *tensors, *launch.numbers, **launch.constants, **_options(launch)
    )
    # the interpreter compiles nothing and returns None
    if compiled is not None and aligned:
        if len(_ready) >= MOST_READY:
            _ready.clear()
        _ready[key] = starter(compiled, index), launch.programs, _rest(kernel, launch)
    return None


def start_of(
    kernel: Any, device: int, launch: Launch, kinds: tuple[torch.dtype | None, ...]
) -> tuple[Start, tuple[Any, ...]]:
    """What starts ``launch`` on a device, compiled now, and the arguments after the addresses.

    kinds: the dtype of each tensor of the kernel, None for those that are not there.
    """
    constants = launch.constants | _options(launch)
    made = compiled_start(kernel, device, (*kinds, *launch.numbers), constants)
    return made, _rest(kernel, launch)


def _options(launch: Launch) -> dict[str, Any]:
    return {"num_warps": launch.warps, "num_stages": launch.stages, **FUSED}


def _rest(kernel: Any, launch: Launch) -> tuple[Any, ...]:
    """The arguments after the tensors, in the kernel's order."""
    constants = launch.constants
    return (*launch.numbers, *(constants[name] for name in kernel.arg_names if name in constants))
