"""The CUDA sources compile, their cubins are kept, and a launch hands over what it was given."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from trainscope_kernels import nvrtc
from trainscope_kernels.errors import ImplUnavailableError, KernelError
from trainscope_kernels.gelu import cuda_impl

GELU = cuda_impl.HERE / "gelu.cu"
HEADERS = [cuda_impl.HERE / "gelu.cuh"]
MACROS = {"SCALAR": 1, "TANH": 0, "THREADS": 256, "STREAM": 0, "VECTORS": 2}
NVCC = shutil.which("nvcc")
TRITON = Path(str(find_spec("triton").origin)).parent  # type: ignore[union-attr]
NVDISASM = TRITON / "backends" / "nvidia" / "bin" / "nvdisasm"

needs_nvrtc = pytest.mark.skipif(
    nvrtc.nvrtc_reason() is not None, reason=f"no NVRTC: {nvrtc.nvrtc_reason()}"
)
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINSCOPE_KERNELS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@needs_nvcc
@pytest.mark.parametrize(
    ("file", "scalar", "architecture"),
    [("gelu.cu", 1, 90), ("gelu.cu", 0, 80), ("bias_gelu.cu", 2, 90)],
)
def test_nvcc_finds_no_error_no_spill_and_vector_accesses(
    file: str, scalar: int, architecture: int, tmp_path: Path
) -> None:
    macros = {**MACROS, "SCALAR": scalar, "BIAS": 0}
    cubin = tmp_path / "out.cubin"
    command = [NVCC, "-cubin", f"-arch=sm_{architecture}", "-Xptxas", "-v", "-o", str(cubin)]
    command += [str(cuda_impl.HERE / file), *(f"-D{name}={n}" for name, n in macros.items())]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "warning" not in ended.stderr
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", ended.stderr)
    assert spills == [("0", "0")] * 4
    registers = [int(each) for each in re.findall(r"Used (\d+) registers", ended.stderr)]
    assert max(registers) <= 64  # four blocks of 256 threads an SM
    listing = subprocess.run([NVDISASM, "-c", cubin], check=True, capture_output=True, text=True)
    kernels = listing.stdout.split(".text.")
    (forward,) = [each for each in kernels if re.match(r"(bias_)?forward:", each)]
    (backward,) = [each for each in kernels if re.match(r"(bias_)?backward:", each)]
    vectors = MACROS["VECTORS"]
    assert len(re.findall(r"LDG\.E[.\w]*\.128", forward)) >= vectors
    assert len(re.findall(r"STG\.E[.\w]*\.128", forward)) >= vectors
    assert len(re.findall(r"LDG\.E[.\w]*\.128", backward)) >= 2 * vectors
    assert len(re.findall(r"STG\.E[.\w]*\.128", backward)) >= vectors


@needs_nvrtc
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_nvrtc_compiles_every_source(capability: tuple[int, int]) -> None:
    for scalar, tanh in product((0, 1, 2), (0, 1)):
        macros = {**MACROS, "SCALAR": scalar, "TANH": tanh}
        assert nvrtc.compiled(GELU, capability, macros, HEADERS)[:4] == b"\x7fELF"
    for scalar, bias in ((0, 0), (1, 0), (2, 2)):
        macros = {**MACROS, "SCALAR": scalar, "BIAS": bias}
        source = cuda_impl.HERE / "bias_gelu.cu"
        assert nvrtc.compiled(source, capability, macros, HEADERS)[:4] == b"\x7fELF"
    naive = cuda_impl.HERE / "naive_gelu.cu"
    assert nvrtc.compiled(naive, capability, {}, [])[:4] == b"\x7fELF"


@needs_nvrtc
def test_an_error_of_the_source_is_shown(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text("__global__ void f() { nothing; }")
    with pytest.raises(nvrtc.CompileError, match=r'wrong\.cu.*\n.*"nothing" is undefined'):
        nvrtc.compiled(source, (9, 0), {}, [])


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """NVRTC replaced by one that notes what it was asked to compile."""
    asked: list[str] = []

    def compile_(name: str, texts: list[bytes], names: list[str], options: list[str]) -> bytes:
        asked.append(name)
        return b"\x7fELF" + repr((texts, names, options)).encode()

    monkeypatch.setattr(nvrtc, "_supported", lambda: ("13.0", [80, 90]))
    monkeypatch.setattr(nvrtc, "_compile", compile_)
    return asked


def test_a_cubin_is_compiled_once(compiler: list[str], cache: Path) -> None:
    first = nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS)
    assert nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS) == first
    assert compiler == ["gelu.cu"]
    assert [each.suffix for each in cache.iterdir()] == [".cubin"]


@pytest.mark.parametrize(
    "change",
    [
        lambda: nvrtc.compiled(GELU, (8, 0), MACROS, HEADERS),
        lambda: nvrtc.compiled(GELU, (9, 0), {**MACROS, "TANH": 1}, HEADERS),
        lambda: nvrtc.compiled(GELU, (9, 0), MACROS, [*HEADERS, *HEADERS]),
        lambda: nvrtc.compiled(cuda_impl.HERE / "bias_gelu.cu", (9, 0), MACROS, HEADERS),
    ],
)
def test_whatever_changes_the_result_changes_the_key(
    change: Callable[[], bytes], compiler: list[str]
) -> None:
    assert nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS) != change()
    assert len(compiler) == 2


def test_another_nvrtc_compiles_again(compiler: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS)
    monkeypatch.setattr(nvrtc, "_supported", lambda: ("13.1", [80, 90]))
    nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS)
    assert len(compiler) == 2


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: b""])
def test_a_damaged_file_is_compiled_again(
    damage: Callable[[bytes], bytes], compiler: list[str], cache: Path
) -> None:
    first = nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS)
    (file,) = cache.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS) == first
    assert nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS) == first
    assert len(compiler) == 2


def test_a_cache_that_cannot_be_written_is_told(
    compiler: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("a file where the directory should be")
    with pytest.warns(RuntimeWarning, match="Set TRAINSCOPE_KERNELS_CACHE"):
        cubin = nvrtc.compiled(GELU, (9, 0), MACROS, HEADERS)
    assert cubin.startswith(b"\x7fELF")


def test_a_gpu_newer_than_nvrtc_is_named(compiler: list[str]) -> None:
    with pytest.raises(ImplUnavailableError, match=r"13\.0.*capability 10\.0; it can for 80, 90"):
        nvrtc.compiled(GELU, (10, 0), MACROS, HEADERS)


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
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 55, raising=False)
    return fake


def test_a_launch_hands_over_grid_block_stream_and_64_bit_arguments(driver: FakeDriver) -> None:
    kernel = nvrtc.Kernel("f 3", SimpleNamespace(device=0))  # type: ignore[arg-type]
    kernel(3_000_000, (32, 8), 2**63 + 16, 5, 2**31 + 1)
    grid, block, shared = [3_000_000, 1, 1], [32, 8, 1], [0]
    assert driver.launches == [("f 3", grid + block + shared, 55, [2**63 + 16, 5, 2**31 + 1])]


def test_each_thread_binds_the_context_once_and_has_its_own_arguments(driver: FakeDriver) -> None:
    kernel = nvrtc.Kernel("f 1", SimpleNamespace(device=0))  # type: ignore[arg-type]

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
    kernel = nvrtc.Kernel("f 1", SimpleNamespace(device=0))  # type: ignore[arg-type]
    driver.status = 1
    with pytest.raises(KernelError, match="CUDA_ERROR_INVALID_VALUE"):
        kernel(1, (1, 1), 1)
