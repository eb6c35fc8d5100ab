"""One kernel that takes the values of a whole ``log`` call to their rows, whatever their dtypes.

``_foreach_copy_`` needs a launch for each dtype, and spends two thirds of its time on the CPU
before it launches anything. Here the addresses are put into the kernel's parameters and the
driver is asked directly.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

import torch

from trainscope.metrics.gather_kernel import CODES, GATHER_LIMIT, KERNEL, PARAMETER_BYTES, PTX
from trainscope.metrics.lanes import relax_capture_checks

__all__ = ["Gather", "GatherError", "load_wanted"]


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
        self._device_index = device_index
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
        self.works = True
        """False once the driver has refused."""

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
            GatherError: nothing was enqueued. The kernel is not loaded yet; or it never will be,
                or the driver refused: then ``works`` is False.
        """
        if self._busy:
            raise GatherError("a signal handler logs in the middle of another call")
        self._busy = True
        try:
            if self._function is None:
                self._find()
            if stream != self._stream:
                self._config.stream = self._stream = stream
            self._pack(self._parameters, GATHER_LIMIT, *to, *from_)
            code = self._launch(self._config_at, self._function, self._pointers_at, None)
            if code:
                self.works = False
                raise GatherError(f"cuLaunchKernelEx returned {code}")
        finally:
            self._busy = False

    def _find(self) -> None:
        index = self._device_index
        found = _kernels.get(index)
        if found is None:
            self.works = index not in _refused
            if self.works:
                _wanted.add(index)
            raise GatherError("the kernel is not loaded")
        if torch.cuda.current_device() != index:
            self.works = False
            raise GatherError("the values lie on another device than the current one")
        self._launch, self._function = found


_Kernel = tuple[Callable[..., int], ctypes.c_void_p]
"""The driver's launch function, and the kernel in the context of one device."""
_kernels: dict[int, _Kernel] = {}
"""By device, for as long as the process lives."""
_wanted: set[int] = set()
_refused: dict[int, str] = {}


def load_wanted() -> None:
    """Load the kernel where a launch has asked for it, away from the loop: it takes 15 ms."""
    while _wanted:
        index = _wanted.pop()
        if index in _kernels:
            continue
        relax_capture_checks()
        try:
            with torch.cuda.device(index):
                _kernels[index] = _loaded()
        except (GatherError, OSError, AttributeError, RuntimeError) as fault:
            _refused[index] = f"{type(fault).__name__}: {fault}"  # torch copies the values then


def _loaded() -> _Kernel:
    driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    launch = driver.cuLaunchKernelEx
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    for code in (
        driver.cuModuleLoadData(ctypes.byref(module), PTX),
        driver.cuModuleGetFunction(ctypes.byref(kernel), module, KERNEL),
    ):
        if code:
            raise GatherError(f"the driver did not load the kernel: {code}")
    return launch, kernel
