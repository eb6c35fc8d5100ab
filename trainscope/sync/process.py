"""The two installations of this process, live and dry, and which of them fits the machine."""

from __future__ import annotations

from trainscope.sync.cuda_present import cuda_present
from trainscope.sync.installation import Installation
from trainscope.sync.live import Live
from trainscope.sync.observer import Observer, Source

__all__ = ["DRY", "LIVE", "fitting"]


def _dry_run(observer: Observer) -> Source:
    from trainscope.sync.dry import DryRun  # needed on a machine without a GPU only

    return DryRun(observer._observe, observer.h2d_range)


LIVE = Installation(Live)
DRY = Installation(_dry_run)


def fitting() -> Installation:
    """Return the installation that is in use, or else the one that fits the machine."""
    for installation in (LIVE, DRY):
        if installation.source is not None:
            return installation
    return LIVE if cuda_present() else DRY
