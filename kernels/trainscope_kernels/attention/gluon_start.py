"""Starting a Gluon kernel: tensor maps of its arguments, and a launch that Triton plans once."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from trainscope_kernels.attention.gluon_envelope import tma_takes

__all__ = ["Map", "multiprocessors", "readable", "start", "tensor_map"]


class Map(NamedTuple):
    """What a compiled kernel needs of a tensor to make its tensor map of it."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int
    columns: int
    padding: str = "zero"


_multiprocessors: dict[int | None, int] = {}


def multiprocessors(device: int) -> int:
    """How many the device has."""
    found = _multiprocessors.get(device)
    if found is None:
        found = torch.cuda.get_device_properties(device).multi_processor_count
        _multiprocessors[device] = found
    return found


def readable(x: torch.Tensor) -> torch.Tensor:
    """The tensor, or a contiguous copy of one that TMA and 16-byte loads cannot read."""
    if tma_takes(x) and x.data_ptr() % 16 == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def tensor_map(x: torch.Tensor, rows: int, columns: int = 0) -> Map:
    """The tensor in boxes of ``rows`` rows of one head; columns: of the box, 0 for the head's.

    A power of two each. What a box has outside of the tensor is read as zeros and not written.
    """
    shape = tuple(x.shape)
    # a dim of size 1 may have any stride, and the hardware refuses some: give it a harmless one
    strides = [
        stride if size > 1 else shape[3]
        for size, stride in zip(shape[:3], x.stride()[:3], strict=True)
    ]
    return Map(x, shape, (*strides, 1), rows, columns or shape[3])


def _described(argument: Any) -> Any:
    if not isinstance(argument, Map):
        return argument
    block = [1, 1, argument.rows, argument.columns]
    dtype = gl.bfloat16 if argument.base.dtype == torch.bfloat16 else gl.float16
    layout: Any = gl.NVMMASharedLayout.get_default_for(block, dtype)
    return TensorDescriptor(
        argument.base, list(argument.shape), list(argument.strides), block, layout
    )


_ready: dict[Any, tuple[Any, tuple[Any, ...]]] = {}


def start(
    kernel: Any, programs: int, kind: tuple[Any, ...], arguments: tuple[Any, ...], **constants: Any
) -> None:
    """Launch on the current stream of the current device.

    kind: all that the compiled code depends on, the device first. Of a known kind the compiled
    kernel is called outright: Triton itself would describe each argument again to find it.
    """
    key = (kernel.fn, kind)
    ready = _ready.get(key)
    if ready is not None:
        compiled, in_order = ready
        compiled[(programs, 1, 1)](*arguments, *in_order)
        return
    described = [_described(each) for each in arguments]
    compiled = kernel[(programs,)](*described, **constants, num_warps=4)
    names = [name for name in kernel.arg_names if name in constants]
    _ready[key] = compiled, tuple(constants[name] for name in names)
