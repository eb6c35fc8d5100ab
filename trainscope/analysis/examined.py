"""``Examined``: a window with its steps and syncs, which most analyses of it start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainscope.analysis.noted_sites import LiveRecord
from trainscope.analysis.window_steps import WindowSteps, find_steps
from trainscope.analysis.window_syncs import WindowSync, find_syncs
from trainscope.trace.syncs import SyncSite
from trainscope.trace.window import Window

__all__ = ["Examined", "best_window", "examine"]


@dataclass(frozen=True, eq=False)
class Examined:
    """Finding steps and syncs takes as long as most that is asked of them."""

    window: Window
    steps: WindowSteps
    syncs: tuple[WindowSync, ...]


def examine(
    window: Window, live_sites: Sequence[SyncSite] = (), record: LiveRecord | None = None
) -> Examined:
    """Find the steps and syncs; ``live_sites`` and ``record`` are of the run: see `find_syncs`."""
    steps = find_steps(window)
    return Examined(window, steps, find_syncs(window, steps, live_sites, record))


def best_window(windows: Sequence[Window]) -> Window | None:
    """The window with most GPU ops, of equal ones the first; None where none has any."""
    some = [window for window in windows if len(window.gpu)]
    return max(some, key=lambda window: len(window.gpu)) if some else None
