"""The CUDA sources compile, and their cubins are kept."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from trainscope_kernels import nvrtc
from trainscope_kernels.errors import ImplUnavailableError
from trainscope_kernels.gelu import cuda_impl

GELU = cuda_impl.HERE / "gelu.cu"
HEADERS = cuda_impl.HEADERS
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
    command += [f"-I{cuda_impl.HERE.parent}", str(cuda_impl.HERE / file)]
    command += [f"-D{name}={n}" for name, n in macros.items()]
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
