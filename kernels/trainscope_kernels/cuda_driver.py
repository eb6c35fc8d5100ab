"""Kernels of a cubin, launched through the CUDA driver on torch's current stream.

A launch costs few microseconds: the arguments are all 64 bits wide and written into memory that
each thread keeps, so that nothing is allocated or inspected.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

import torch

from trainscope_kernels.errors import KernelError

__all__ = ["Kernel", "Module", "checked"]

ARGUMENTS_AT_MOST = 16


class Module:
    """A cubin loaded on one device."""

    def __init__(self, cubin: bytes, device: int) -> None:
        from cuda.bindings import driver

        self.device = device
        with torch.cuda.device(device):
            _bind_context(device)
            (self._module,) = checked(driver.cuModuleLoadData(cubin))

    def kernel(self, name: str) -> Kernel:
        """The ``extern "C"`` kernel of that name."""
        from cuda.bindings import driver

        with torch.cuda.device(self.device):
            (function,) = checked(driver.cuModuleGetFunction(self._module, name.encode()))
        return Kernel(function, self)


class Kernel:
    """A kernel whose arguments are all 64 bits wide: pointers and lengths."""

    def __init__(self, function: Any, module: Module) -> None:
        from cuda.bindings import driver

        self._module = module  # its unloading would take the function along
        self._function = function
        self._device = module.device
        self._launch = driver.cuLaunchKernel

    def __call__(self, blocks: int, threads: tuple[int, int], *arguments: int) -> None:
        """Enqueue it on torch's current stream of its device."""
        if torch._C._cuda_getDevice() == self._device:
            self._enqueue(blocks, threads, arguments)
        else:
            with torch.cuda.device(self._device):
                self._enqueue(blocks, threads, arguments)

    def _enqueue(self, blocks: int, threads: tuple[int, int], arguments: tuple[int, ...]) -> None:
        slots = _slots
        if slots.bound != self._device:
            _bind_context(self._device)
            slots.bound = self._device
        struct.pack_into(f"{len(arguments)}Q", slots.values, 0, *arguments)
        # the public current_stream() makes a Stream object, for a microsecond and more
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        # 0 shared memory; the driver copies the arguments before it returns
        (result,) = self._launch(
            self._function, blocks, 1, 1, *threads, 1, 0, stream, slots.address, 0
        )
        if result != 0:
            checked((result,))


class _Slots(threading.local):
    """Room for the arguments of a launch, one a thread, with the pointers that the driver reads."""

    def __init__(self) -> None:
        self.bound: int | None = None
        self.values = (ctypes.c_uint64 * ARGUMENTS_AT_MOST)()
        first = ctypes.addressof(self.values)
        addresses = range(first, first + 8 * ARGUMENTS_AT_MOST, 8)
        self._pointers = (ctypes.c_void_p * ARGUMENTS_AT_MOST)(*addresses)
        self.address = ctypes.addressof(self._pointers)


_slots = _Slots()


def _bind_context(device: int) -> None:
    """Give this thread torch's context: a thread of autograd may not have touched CUDA yet."""
    from cuda.bindings import driver

    checked(driver.cuInit(0))
    (context,) = checked(driver.cuCtxGetCurrent())
    if int(context) == 0:
        (handle,) = checked(driver.cuDeviceGet(device))
        (context,) = checked(driver.cuDevicePrimaryCtxRetain(handle))
        checked(driver.cuCtxSetCurrent(context))


def checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call returned after its status; raises KernelError where that is no success."""
    status, *values = answer
    if int(status) != 0:
        raise KernelError(
            f"CUDA refused a call: {status.name} ({type(status).__name__} {int(status)}); an error "
            "of an earlier kernel shows here too: CUDA_LAUNCH_BLOCKING=1 tells which"
        )
    return tuple(values)
