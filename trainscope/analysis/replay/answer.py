"""``WhatIf``: what a replay says of a step without its syncs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainscope.analysis.replay.drawing import Drawable
from trainscope.analysis.window_site import WindowSite

__all__ = ["Removal", "WhatIf"]


@dataclass(frozen=True)
class Removal:
    """A step as replayed without some syncs."""

    sites: tuple[WindowSite, ...]
    what: Literal["all", "one", "smallest set"]
    step_ns: float
    speedup: float
    band: tuple[float, float]
    """Of the speedup: 10th and 90th percentile over what the profiler may have cost."""
    replaced_by: tuple[str, ...]
    """What stands in the place of each site's sync, in words."""


@dataclass(frozen=True)
class WhatIf:
    """The replay of a window and what it says; where ``cannot_tell`` is set, only why not."""

    measured_step_ns: float | None
    """Without a profiler; None where it was not given."""
    measured_wait_ns: float | None
    """In a step at those sites that were timed without a profiler; None where none was."""
    replayed_step_ns: float | None
    """With all syncs, in the steady state, corrected for the profiler; None where nothing was
    replayed."""
    drift: float | None
    """Of the recorded steps, replayed once as recorded, from what they took: (replayed / recorded)
    - 1. That it is small shows that the window was read right, not that the forecast is."""
    calibrated: bool
    removals: tuple[Removal, ...]
    """All together first, then each alone, most gain first, then the smallest set that keeps most
    of the gain, where it is neither of these."""
    cannot_tell: str | None
    assumptions: tuple[str, ...]
    drifted: bool = False
    """``cannot_tell`` is that the drift is too large, and says how large."""
    kept: tuple[WindowSite, ...] = ()
    """Sites that are in no removal, because the program needs them."""
    lanes: tuple[tuple[int, int], ...] = ()
    """Device and stream of each lane of the drawings."""
    before: Drawable | None = None
    """The recorded steps as replayed, for the likeliest guess."""
    after: Drawable | None = None
    """The same without any of the syncs that may go."""
