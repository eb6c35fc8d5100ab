"""What ``trainscope doctor`` looks up of this machine and of what is installed on it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Facts", "TorchFacts"]


@dataclass(frozen=True)
class TorchFacts:
    """What the installed torch says of itself and of this machine."""

    version: str
    cuda: str | None = None
    """CUDA version it was built for."""
    hip: str | None = None
    """ROCm version it was built for."""
    cuda_available: bool = False
    mps_available: bool = False
    gpus: tuple[str, ...] = ()
    kineto: bool = True
    """Whether its profiler can record at all."""


@dataclass(frozen=True)
class Facts:
    """All that was looked up; a version is None where the package is not installed."""

    python: tuple[int, int, int]
    platform: str
    """``sys.platform``."""
    torch: TorchFacts | None
    torch_error: str | None = None
    """Why torch could not be imported."""
    driver: str | None = None
    """Version of NVIDIA's driver."""
    nvidia_gpus: tuple[str, ...] = ()
    """GPUs that the driver knows, whatever torch says."""
    triton: str | None = None
    nvtx: str | None = None
    nvtx_backend: str | None = None
    """The way that ranges take now, with a tool attached."""
    nvtx_reason: str = ""
    tool_attached: bool = False
    nsys_path: str | None = None
    nsys_version: tuple[int, int] | None = None
    wandb: str | None = None
    tensorboard: str | None = None
    kernels: str | None = None
    """Version of Hugging Face's package ``kernels``, ``namespace``, or None."""
