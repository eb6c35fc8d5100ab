"""Which impl can run where: asked once a device, with the reason where it cannot."""

from __future__ import annotations

import importlib.util
import os

import torch

from trainscope_kernels.errors import ImplUnavailableError

__all__ = ["interpreting", "require_triton", "triton_reason"]

OLDEST_CAPABILITY = (8, 0)
"""Ampere. Older GPUs have no bf16 and no cp.async; nothing here was tried on them."""
_reasons: dict[tuple[str, int], str | None] = {}


def interpreting() -> bool:
    """Whether Triton kernels run in NumPy on CPU tensors (``TRITON_INTERPRET=1``)."""
    return os.environ.get("TRITON_INTERPRET", "0") in ("1", "true", "on", "yes")


def triton_reason(device: torch.device) -> str | None:
    """Why Triton kernels cannot run on this device; None where they can."""
    return _answer(device.type, device.index or 0)


def _answer(device_type: str, index: int) -> str | None:
    # a dict, for torch.compile warns of a functools.cache that it meets
    key = device_type, index
    if key not in _reasons:
        _reasons[key] = _triton_reason(device_type, index)
    return _reasons[key]


# What torch.compiler.assume_constant_result does, which would import more of torch with us: traced,
# the answers found so far would be guarded, and each new one would compile the caller again.
_answer._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _triton_reason(device_type: str, index: int) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton"
    if interpreting():
        return None
    if torch.version.hip is not None:
        return "Triton kernels here are for NVIDIA GPUs, and this torch is built for ROCm"
    if device_type != "cuda":
        return f"Triton kernels need a CUDA tensor, this one is on {device_type}"
    capability = torch.cuda.get_device_capability(index)
    if capability < OLDEST_CAPABILITY:
        return f"Triton kernels need compute capability 8.0 or newer, this GPU has {capability}"
    return None


def require_triton(device: torch.device) -> None:
    """Raise ImplUnavailableError, with the reason, where Triton kernels cannot run."""
    reason = triton_reason(device)
    if reason is not None:
        raise ImplUnavailableError(f"impl='triton' cannot run: {reason}; or pass impl='auto'")
