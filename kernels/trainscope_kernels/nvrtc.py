"""CUDA C++ compiled on the user's machine by NVRTC, and kept on disk.

No nvcc and no host compiler is needed: NVRTC and cuda.bindings come with torch's CUDA wheels.
A first use compiles for about half a second; after that, any process loads the cubin from
``$TRAINSCOPE_KERNELS_CACHE``, else ``$XDG_CACHE_HOME/trainscope_kernels``, else
``~/.cache/trainscope_kernels``.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from trainscope_kernels.cuda_driver import checked
from trainscope_kernels.errors import ImplUnavailableError, KernelError

__all__ = ["CompileError", "cache_directory", "compiled", "nvrtc_reason", "reason_on"]

FORMAT = 1
"""Part of every cache key; raised when a file's layout changes."""

DIGEST_BYTES = 32


class CompileError(KernelError, RuntimeError):
    """NVRTC refused a source; the text is its log."""


def nvrtc_reason() -> str | None:
    """Why nothing can be compiled with NVRTC here; None where it can."""
    try:
        return None if _supported() else "NVRTC names no GPU that it can compile for"
    except ImplUnavailableError as error:
        return str(error)


def reason_on(device: torch.device, oldest: tuple[int, int], because: str = "") -> str | None:
    """Why kernels for compute capability ``oldest`` and newer cannot run on a device, or None.

    because: what the older ones lack, in brackets and after a space.
    """
    if device.type != "cuda":
        return f"it needs a CUDA tensor, this one is on {device.type}"
    if torch.version.hip is not None:
        return "this torch is built for ROCm"
    capability = torch.cuda.get_device_capability(device)
    if capability < oldest:
        needed = ".".join(map(str, oldest))
        return f"it needs compute capability {needed} or newer{because}, this GPU has {capability}"
    return nvrtc_reason()


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
        major, minor = checked(nvrtc.nvrtcVersion())
    except RuntimeError as error:  # cuda.bindings raises this, or a subclass, for a missing library
        raise ImplUnavailableError(
            f"the NVRTC library cannot be loaded ({error}); pip install nvidia-cuda-nvrtc"
        ) from error
    (supported,) = checked(nvrtc.nvrtcGetSupportedArchs())
    return f"{major}.{minor}", list(supported)


def _compile(name: str, texts: list[bytes], header_names: list[str], options: list[str]) -> bytes:
    from cuda.bindings import nvrtc

    source, *headers = texts
    encoded = [each.encode() for each in options]
    header_bytes = [each.encode() for each in header_names]
    (program,) = checked(
        nvrtc.nvrtcCreateProgram(source, name.encode(), len(headers), headers, header_bytes)
    )
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            (size,) = checked(nvrtc.nvrtcGetProgramLogSize(program))
            log = bytes(size)
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            text = log.rstrip(b"\0").decode(errors="replace")
            raise CompileError(
                f"NVRTC could not compile {name} with {options}; pass impl='triton', and please "
                f"report what it said:\n{text}"
            )
        (size,) = checked(nvrtc.nvrtcGetCUBINSize(program))
        cubin = bytes(size)
        checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)
