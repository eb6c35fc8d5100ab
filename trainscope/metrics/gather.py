"""One kernel that takes the values of a whole ``log`` call to their rows, whatever their dtypes.

``_foreach_copy_`` needs a launch for each dtype, and spends two thirds of its time on the CPU
before it launches anything. Here the addresses are put into the kernel's parameters and the
driver is asked directly.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

import torch

from trainscope.metrics.gather_kernel import CODES, GATHER_LIMIT, KERNEL, PARAMETER_BYTES, PTX
from trainscope.metrics.lanes import relax_capture_checks

__all__ = ["Gather", "GatherError", "load_awaited"]


_INVALID_CONTEXT = 201


class GatherError(Exception):
    """The driver did not take the launch; nothing was copied."""


class _LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig`` of cuda.h."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z")),
        *((name, ctypes.c_uint) for name in ("block_x", "block_y", "block_z", "shared_bytes")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class Gather:
    """Launches for values that lie alike: of these dtypes in this order, on this device.

    Its parameters are one piece of memory, so only one thread at a time may launch.
    """

    def __init__(self, dtypes: Sequence[torch.dtype], device_index: int) -> None:
        count = len(dtypes)
        self.device_index = device_index
        self._parameters = (ctypes.c_ubyte * PARAMETER_BYTES)(*(CODES[each] for each in dtypes))
        self._pack = Struct(f"={2 * count}Q").pack_into
        self._config = _LaunchConfig(1, 1, 1, count, 1, 1, 0, None, None, 0)
        self._pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self._parameters))
        self._config_at = ctypes.c_void_p(ctypes.addressof(self._config))
        self._pointers_at = ctypes.c_void_p(ctypes.addressof(self._pointers))
        self._stream = 0
        self._busy = False
        self._function: Any = None
        self._launch: Any = None
        self._one_gpu = torch.cuda.device_count() == 1
        self.ready = False
        """Whether ``launch`` may be called: from when the kernel is loaded until it is refused."""
        _waiting.append(self)

    @staticmethod
    def takes(dtypes: Sequence[torch.dtype], device_indices: Iterable[int]) -> bool:
        """Whether a single launch can do it: all on one CUDA device, all dtypes known."""
        devices = set(device_indices)
        return (
            len(devices) == 1
            and min(devices) >= 0
            and len(dtypes) <= GATHER_LIMIT
            and torch.version.cuda is not None
            and CODES.keys() >= set(dtypes)
        )

    def launch(self, stream: int, to: Iterable[int], from_: Iterable[int]) -> None:
        """Enqueue the copies on the stream, whose device is the current one.

        Raises:
            GatherError: nothing was enqueued. Where the driver will refuse again, ``ready`` is
                False now.
        """
        if self._busy:
            raise GatherError("a signal handler logs in the middle of another call")
        self._busy = True
        try:
            if not self._one_gpu and torch.cuda.current_device() != self.device_index:
                raise GatherError("the values lie on another device than the current one")
            if stream != self._stream:
                self._config.stream = self._stream = stream
            self._pack(self._parameters, GATHER_LIMIT, *to, *from_)
            code = self._launch(self._config_at, self._function, self._pointers_at, None)
            if code:
                # a thread that has not used the GPU yet has no context: torch makes it current
                self.ready = code == _INVALID_CONTEXT
                raise GatherError(f"cuLaunchKernelEx returned {code}")
        finally:
            self._busy = False

    def take(self, kernel: Kernel) -> None:
        """From now on launch this."""
        self._launch, self._function = kernel
        self.ready = True


Kernel = tuple[Callable[..., int], ctypes.c_void_p]
"""The driver's launch function, and the kernel in the context of one device."""
_kernels: dict[int, Kernel | None] = {}
"""By device, for as long as the process lives; None: it could not be loaded, so torch copies."""
_waiting: deque[Gather] = deque()


def load_awaited() -> None:
    """Give the kernel to those that wait for it; on the worker, for loading it takes 15 ms."""
    while True:
        try:
            gather = _waiting.popleft()
        except IndexError:  # or another scope's worker was quicker
            return
        index = gather.device_index
        if index not in _kernels:
            try:
                relax_capture_checks()
                _kernels[index] = _loaded(_driver(), index)
            except (GatherError, OSError, AttributeError):  # no such driver, or one too old
                _kernels[index] = None
        kernel = _kernels[index]
        if kernel is not None:
            gather.take(kernel)


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _loaded(driver: ctypes.CDLL, index: int) -> Kernel:
    """Load the kernel into the device's primary context, which is the one that torch is in.

    That need not be current on this thread.
    """
    launch = driver.cuLaunchKernelEx
    device, context, before = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    _checked(driver.cuDeviceGet(ctypes.byref(device), index))
    _checked(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    try:
        _checked(driver.cuCtxPushCurrent_v2(context))
        try:
            _checked(driver.cuModuleLoadData(ctypes.byref(module), PTX))
            _checked(driver.cuModuleGetFunction(ctypes.byref(kernel), module, KERNEL))
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(before))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
    return launch, kernel


def _checked(code: int) -> None:
    if code:
        raise GatherError(f"the driver did not load the kernel: {code}")
