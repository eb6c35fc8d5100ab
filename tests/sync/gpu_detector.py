"""What the GPU tests share: a detector around a call, with nothing queued before it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from trainscope.sync.detector import SyncDetector
from trainscope.trace.syncs import SyncSite


def found(call: Callable[[], object]) -> list[SyncSite]:
    """Run `call` under a detector; return its sites."""
    torch.cuda.synchronize()
    with SyncDetector(dry_run=False) as detector:
        call()
    torch.cuda.synchronize()
    return list(detector.sites())


def gpu(*size: int) -> torch.Tensor:
    return torch.ones(*size, device="cuda")
