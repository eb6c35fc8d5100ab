"""Whether this machine has a CUDA device, asked without side effects."""

from __future__ import annotations

import os

import torch

__all__ = ["cuda_present"]

_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def cuda_present() -> bool:
    """Return whether there is a CUDA device, without starting CUDA in this process.

    Starting it would break a later fork, and a later change of ``CUDA_VISIBLE_DEVICES``.
    """
    before = os.environ.get(_BY_NVML)
    os.environ[_BY_NVML] = "1"
    try:
        return torch.cuda.is_available()
    finally:
        if before is None:
            del os.environ[_BY_NVML]
        else:
            os.environ[_BY_NVML] = before
