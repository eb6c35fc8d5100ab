"""The two installations of this process, live and dry, and which of them fits the machine."""

from __future__ import annotations

import os

import torch

from trainscope.sync.installation import Installation
from trainscope.sync.live import Live
from trainscope.sync.observer import Observer, Source

__all__ = ["DRY", "LIVE", "cuda_present", "fitting"]

_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def _dry_run(observer: Observer) -> Source:
    from trainscope.sync.dry import DryRun  # needed on a machine without a GPU only

    return DryRun(observer._observe, observer.h2d_range)


LIVE = Installation(Live)
DRY = Installation(_dry_run)


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


def fitting() -> Installation:
    """Return the installation that is in use, or else the one that fits the machine."""
    for installation in (LIVE, DRY):
        if installation.source is not None:
            return installation
    return LIVE if cuda_present() else DRY
