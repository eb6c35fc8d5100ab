"""CUDA C++ compiled on the user's machine by NVRTC, kept on disk, launched by the CUDA driver.

No nvcc and no host compiler is needed: NVRTC and cuda.bindings come with torch's CUDA wheels.
A first use compiles for about half a second; after that, any process loads the cubin from
``$TRAINSCOPE_KERNELS_CACHE``, else ``$XDG_CACHE_HOME/trainscope_kernels``, else
``~/.cache/trainscope_kernels``.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import struct
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trainscope_kernels.errors import ImplUnavailableError, KernelError

__all__ = ["CompileError", "Kernel", "Module", "compiled", "nvrtc_reason"]

FORMAT = 1
"""Part of every cache key; raised when a file's layout changes."""

DIGEST_BYTES = 32
ARGUMENTS_AT_MOST = 16


class CompileError(KernelError, RuntimeError):
    """NVRTC refused a source; the text is its log."""


def nvrtc_reason() -> str | None:
    """Why nothing can be compiled with NVRTC here; None where it can."""
    try:
        return None if _supported() else "NVRTC names no GPU that it can compile for"
    except ImplUnavailableError as error:
        return str(error)


def compiled(
    source: Path, capability: tuple[int, int], macros: Mapping[str, int], headers: Sequence[Path]
) -> bytes:
    """The cubin of a source file for one GPU generation, from the disk cache if it is there.

    capability: (9, 0) for Hopper. macros: one ``-D`` each. headers: found by their file names.
    Raises CompileError with NVRTC's log, ImplUnavailableError where NVRTC is missing or too old.
    """
    version, supported = _supported()
    architecture = capability[0] * 10 + capability[1]
    if architecture not in supported:
        raise ImplUnavailableError(
            f"NVRTC {version} cannot compile for compute capability "
            f"{capability[0]}.{capability[1]}; it can for {', '.join(map(str, supported))}. "
            f"Install a newer nvidia-cuda-nvrtc, or pass impl='triton'"
        )
    options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17"]
    options += [f"-D{name}={value}" for name, value in sorted(macros.items())]
    texts = [each.read_bytes() for each in (source, *headers)]
    key = repr((FORMAT, version, options, texts))
    path = cache_directory() / f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()}.cubin"
    cubin = _read(path)
    if cubin is None:
        cubin = _compile(source.name, texts, [each.name for each in headers], options)
        _write(path, cubin)
    return cubin


def cache_directory() -> Path:
    """Where compiled kernels are kept."""
    ours = os.environ.get("TRAINSCOPE_KERNELS_CACHE")
    if ours:
        return Path(ours)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "trainscope_kernels"


def _read(path: Path) -> bytes | None:
    """The cubin, or None where there is none or it is damaged: a digest of the rest goes first."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    cubin = content[DIGEST_BYTES:]
    return cubin if hashlib.sha256(cubin).digest() == content[:DIGEST_BYTES] else None


def _write(path: Path, cubin: bytes) -> None:
    """Under another name first: a process that reads meanwhile finds all of it or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(cubin).digest() + cubin)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
    except OSError as error:
        warnings.warn(
            f"trainscope_kernels cannot keep compiled kernels in {path.parent} ({error}); each "
            f"process compiles them again. Set TRAINSCOPE_KERNELS_CACHE to a writable directory",
            RuntimeWarning,
            stacklevel=2,
        )


@functools.cache
def _supported() -> tuple[str, list[int]]:
    """NVRTC's version, and the architectures that it compiles for."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ImplUnavailableError(
            f"cuda.bindings is not installed ({error}); torch's CUDA 13 wheels bring it, "
            f"else: pip install cuda-bindings nvidia-cuda-nvrtc"
        ) from error
    try:
        major, minor = _checked(nvrtc.nvrtcVersion())
    except RuntimeError as error:  # cuda.bindings raises this, or a subclass, for a missing library
        raise ImplUnavailableError(
            f"the NVRTC library cannot be loaded ({error}); pip install nvidia-cuda-nvrtc"
        ) from error
    (supported,) = _checked(nvrtc.nvrtcGetSupportedArchs())
    return f"{major}.{minor}", list(supported)


def _compile(name: str, texts: list[bytes], header_names: list[str], options: list[str]) -> bytes:
    from cuda.bindings import nvrtc

    source, *headers = texts
    encoded = [each.encode() for each in options]
    header_bytes = [each.encode() for each in header_names]
    (program,) = _checked(
        nvrtc.nvrtcCreateProgram(source, name.encode(), len(headers), headers, header_bytes)
    )
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            (size,) = _checked(nvrtc.nvrtcGetProgramLogSize(program))
            log = bytes(size)
            _checked(nvrtc.nvrtcGetProgramLog(program, log))
            text = log.rstrip(b"\0").decode(errors="replace")
            raise CompileError(f"NVRTC could not compile {name} with {options}:\n{text}")
        (size,) = _checked(nvrtc.nvrtcGetCUBINSize(program))
        cubin = bytes(size)
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


class Module:
    """A cubin loaded on one device."""

    def __init__(self, cubin: bytes, device: int) -> None:
        from cuda.bindings import driver

        self.device = device
        with torch.cuda.device(device):
            _bind_context(device)
            (self._module,) = _checked(driver.cuModuleLoadData(cubin))

    def kernel(self, name: str) -> Kernel:
        """The ``extern "C"`` kernel of that name."""
        from cuda.bindings import driver

        with torch.cuda.device(self.device):
            (function,) = _checked(driver.cuModuleGetFunction(self._module, name.encode()))
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
        if torch.cuda.current_device() == self._device:
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
            _checked((result,))


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

    _checked(driver.cuInit(0))
    (context,) = _checked(driver.cuCtxGetCurrent())
    if int(context) == 0:
        (handle,) = _checked(driver.cuDeviceGet(device))
        (context,) = _checked(driver.cuDevicePrimaryCtxRetain(handle))
        _checked(driver.cuCtxSetCurrent(context))


def _checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call returned after its status; raises KernelError where that is no success."""
    status, *values = answer
    if int(status) != 0:
        raise KernelError(f"{type(status).__name__}: {status.name} ({int(status)})")
    return tuple(values)
