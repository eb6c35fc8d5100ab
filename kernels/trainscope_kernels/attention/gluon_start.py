"""Starting a Gluon kernel: Triton plans its launch once, and encodes a tensor map once an address.

Triton itself would describe and encode every tensor map anew at each launch, in Python, which costs
the CPU several times as much as the launch.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any, NamedTuple

import torch
from triton.backends.nvidia.driver import make_tensordesc_arg
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from trainscope_kernels.attention.gluon_envelope import tma_takes
from trainscope_kernels.triton_start import Start, starter

__all__ = [
    "Map",
    "Ready",
    "compiled",
    "multiprocessors",
    "readable",
    "start",
    "started",
    "tensor_map",
]


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
    if x.data_ptr() % 16 == 0 and tma_takes(x):
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


class Encoder:
    """Tensor maps of one argument, encoded once for each address and layout of its tensor."""

    def __init__(self, meta: Any) -> None:
        self._meta = meta
        self._made: dict[Any, tuple[Any, ...]] = {}

    def __call__(self, x: torch.Tensor, laid_out: Map) -> tuple[Any, ...]:
        """What the launcher's C function gets of x: its map, sizes and strides.

        laid_out: what ``tensor_map`` gives of x, or of another tensor with its sizes and strides.
        """
        key = x.data_ptr(), laid_out.shape, laid_out.strides
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            of_x = laid_out._replace(base=x)
            made = self._made[key] = tuple(make_tensordesc_arg(of_x, self._meta))
        return made


MOST_MADE = 1024
"""Of 500 bytes each; with ever new addresses they are made anew, rather than grow for ever."""


class Ready(NamedTuple):
    """A compiled kernel: what starts it, what encodes its tensor maps in order, its constants."""

    start: Start
    encoders: tuple[Encoder, ...]
    constants: tuple[Any, ...]


_ready: dict[Any, Ready] = {}


def start(
    kernel: Any, programs: int, kind: tuple[Any, ...], arguments: tuple[Any, ...], **constants: Any
) -> None:
    """Launch on the current stream of the current device.

    kind: all that the compiled code depends on, the device first.
    """
    ready = _ready.get((kernel.fn, kind))
    if ready is None:
        described = [_described(each) for each in arguments]
        made = kernel[(programs,)](*described, **constants, num_warps=4)
        if made is not None:  # there is a GPU, and so something to start again
            _keep(kernel, kind, made, constants)
        return
    given: list[Any] = []
    encoders = iter(ready.encoders)
    for argument in arguments:
        if type(argument) is Map:
            given += next(encoders)(argument.base, argument)
        elif isinstance(argument, torch.Tensor):
            given.append(argument.data_ptr())
        else:
            given.append(argument)
    ready.start(programs, given, ready.constants)


def started(kernel: Any, kind: tuple[Any, ...]) -> Ready | None:
    """What starts the kernel for arguments of this kind again; None where nothing was started."""
    return _ready.get((kernel.fn, kind))


def compiled(
    kernel: Any, kind: tuple[Any, ...], arguments: tuple[Any, ...], **constants: Any
) -> Ready:
    """What starts the kernel for arguments of this kind; it is not started."""
    ready = _ready.get((kernel.fn, kind))
    if ready is not None:
        return ready
    described = [_described(each) for each in arguments]
    made = kernel.warmup(*described, grid=(1,), **constants, num_warps=4)
    return _keep(kernel, kind, made, constants)


def _keep(kernel: Any, kind: tuple[Any, ...], made: Any, constants: dict[str, Any]) -> Ready:
    ready = _ready[kernel.fn, kind] = Ready(
        starter(_encoded_outside(made), kind[0]),
        tuple(Encoder(meta) for meta in made.metadata.tensordesc_meta or ()),
        tuple(constants[name] for name in kernel.arg_names if name in constants),
    )
    return ready


def _encoded_outside(made: Any) -> Any:
    """The kernel, launched with what ``Encoder`` makes where it took descriptors of tensor maps.

    Triton 3.6 wraps the launcher of a kernel with such arguments in a function that encodes them.
    """
    if not made.metadata.tensordesc_meta:
        return made
    launcher = made.run  # loads the kernel, if that was only compiled: before it is copied
    bare = copy.copy(made)
    bare._run = copy.copy(launcher)
    bare._run.launch = inspect.getclosurevars(launcher.launch).nonlocals["launcher"]
    return bare
