"""One kernel that takes the values of a whole ``log`` call to their rows, whatever their dtypes.

``_foreach_copy_`` needs a launch for each dtype, and spends two thirds of its time on the CPU
before it launches anything. Here the addresses are put into the kernel's parameters and the
driver is asked directly.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

import torch

from trainscope.metrics.gather_kernel import CODES, GATHER_LIMIT, KERNEL, PARAMETER_BYTES, PTX

__all__ = ["Gather", "GatherError"]


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
            GatherError: nothing was enqueued; where the driver refused, ``works`` is False now.
        """
        if self._busy:
            raise GatherError("a signal handler logs in the middle of another call")
        self._busy = True
        try:
            if self._function is None:
                self._load()
            if stream != self._stream:
                self._config.stream = self._stream = stream
            self._pack(self._parameters, GATHER_LIMIT, *to, *from_)
            code = self._launch(self._config_at, self._function, self._pointers_at, None)
            if code:
                self.works = False
                raise GatherError(f"cuLaunchKernelEx returned {code}")
        finally:
            self._busy = False

    def _load(self) -> None:
        self.works = False  # until it is loaded
        if torch.cuda.current_device() != self._device_index:
            raise GatherError("the values lie on another device than the current one")
        try:
            driver = _driver()
            self._launch = driver.cuLaunchKernelEx
            function = _functions.get(self._device_index)
            if function is None:
                function = _functions[self._device_index] = _loaded(driver)
            self._function = function
        except (OSError, AttributeError) as fault:
            raise GatherError(f"this driver has no such call: {fault}") from fault
        self.works = True


_functions: dict[int, ctypes.c_void_p] = {}
"""The kernel in each device's context, for as long as the process lives."""


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _loaded(driver: ctypes.CDLL) -> ctypes.c_void_p:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    for code in (
        driver.cuModuleLoadData(ctypes.byref(module), PTX),
        driver.cuModuleGetFunction(ctypes.byref(function), module, KERNEL),
    ):
        if code:
            raise GatherError(f"the driver did not load the kernel: {code}")
    return function
