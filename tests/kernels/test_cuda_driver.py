"""A launch through the driver hands over what it was given, from any thread."""

from __future__ import annotations

import ctypes
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch

from trainscope_kernels.cuda_driver import Kernel
from trainscope_kernels.errors import KernelError


class FakeDriver(ModuleType):
    """Reads the arguments of a launch where the real driver would, before it returns."""

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.launches: list[tuple] = []
        self.bound: list[int] = []
        self.status = 0

    def cuInit(self, flags: int) -> tuple:
        return (0,)

    def cuCtxGetCurrent(self) -> tuple:
        return 0, len([each for each in self.bound if each == threading.get_ident()])

    def cuDeviceGet(self, index: int) -> tuple:
        return 0, index

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple:
        return 0, 7

    def cuCtxSetCurrent(self, context: int) -> tuple:
        self.bound.append(threading.get_ident())
        return (0,)

    def cuLaunchKernel(self, function: str, *rest: int) -> tuple:
        *shape, stream, pointers, _ = rest
        count = int(function.rpartition(" ")[2])
        each = (ctypes.c_void_p * count).from_address(pointers)
        values = [ctypes.c_uint64.from_address(address).value for address in each]
        self.launches.append((function, shape, stream, values))
        return (SimpleStatus(self.status),)


class SimpleStatus(int):
    name = "CUDA_ERROR_INVALID_VALUE"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    bindings = ModuleType("cuda.bindings")
    bindings.driver = fake  # type: ignore[attr-defined]
    for name, module in (("cuda", ModuleType("cuda")), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 55, raising=False)
    return fake


def test_a_launch_hands_over_grid_block_stream_and_64_bit_arguments(driver: FakeDriver) -> None:
    kernel = Kernel("f 3", SimpleNamespace(device=0))  # type: ignore[arg-type]
    kernel(3_000_000, (32, 8), 2**63 + 16, 5, 2**31 + 1)
    grid, block, shared = [3_000_000, 1, 1], [32, 8, 1], [0]
    assert driver.launches == [("f 3", grid + block + shared, 55, [2**63 + 16, 5, 2**31 + 1])]


def test_each_thread_binds_the_context_once_and_has_its_own_arguments(driver: FakeDriver) -> None:
    kernel = Kernel("f 1", SimpleNamespace(device=0))  # type: ignore[arg-type]

    all_alive = threading.Barrier(4)

    def launch(first: int) -> None:
        all_alive.wait()
        for value in range(first, first + 50):
            kernel(1, (1, 1), value)

    threads = [threading.Thread(target=launch, args=(1000 * i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(driver.bound) == 4
    seen = sorted(values[0] for _, _, _, values in driver.launches)
    assert seen == [1000 * i + j for i in range(4) for j in range(50)]


def test_a_launch_that_the_driver_refuses_raises(driver: FakeDriver) -> None:
    kernel = Kernel("f 1", SimpleNamespace(device=0))  # type: ignore[arg-type]
    driver.status = 1
    with pytest.raises(KernelError, match="CUDA_ERROR_INVALID_VALUE"):
        kernel(1, (1, 1), 1)
