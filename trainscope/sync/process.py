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
    """Return the installation that sees waits on this machine: the one in use, or else to use.

    Without a GPU that of a scope that is no dry run sees none.
    """
    live = LIVE.source
    if isinstance(live, Live) and live.present:
        return LIVE
    if DRY.source is not None:
        return DRY
    return LIVE if cuda_present() else DRY
