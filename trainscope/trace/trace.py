"""``Trace``: everything one rank recorded, as data; the waist between recording and analysis."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trainscope.trace.captures import CaptureState
from trainscope.trace.counts import Counts
from trainscope.trace.metrics import MetricsState
from trainscope.trace.noted_waits import NotedWait
from trainscope.trace.ranges import Ranges
from trainscope.trace.run_info import RunInfo
from trainscope.trace.syncs import DetectorState, SyncSite
from trainscope.trace.window import Window

__all__ = ["Trace"]


@dataclass(frozen=True, eq=False)
class Trace:
    """One rank of a run; where a file is missing the field is None or empty and a note says so."""

    path: Path
    """The run directory."""
    rank: int
    info: RunInfo
    ranges: Ranges
    names: tuple[str, ...]
    """Range names; ``ranges.name_id`` counts into them."""
    syncs: tuple[SyncSite, ...] = ()
    detector: DetectorState | None = None
    """None when the detector's file is missing: then an empty ``syncs`` means nothing."""
    metrics: MetricsState | None = None
    captures: CaptureState | None = None
    counts: Counts = field(default_factory=Counts)
    notes: tuple[str, ...] = ()
    """What is wrong or missing in the files, in words."""
    ranks: tuple[Trace, ...] = ()
    """The other ranks of the run, in order; empty when one rank's folder was read."""
    missing_ranks: tuple[int, ...] = ()
    """Ranks of the launch that have no folder."""
    windows: tuple[Window, ...] = ()
    """What a profiler captured of this rank, in time order; empty where nothing was."""
    noted_waits: tuple[NotedWait, ...] = ()
    """Single waits in captured steps, in the order of their ends."""

    @property
    def is_watched(self) -> bool:
        """Whether a detector could see waits, so that one that is missing was not there."""
        state = self.detector
        if state is None or state.mode == "off":
            return False
        return self.info.dry_run or self.info.device is not None or state.armed_steps > 0

    def name(self, name_id: int) -> str:
        """The name of a range; ``?`` where a kill cut the list of names short."""
        return self.names[name_id] if name_id < len(self.names) else "?"
