"""Ranges that are no phases: those inside phases, and those outside steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.steps import StepTimes, few_names, places_of
from trainscope.trace.trace import Trace

__all__ = ["MAX_RANGES", "RangeTimes", "time_ranges"]

MAX_RANGES = 200
"""Ranges told apart, by total time; a name made anew each step would give as many as steps."""
_DEEPEST = 63
"""Depths below it are put together, so that recursion makes no table grow."""

Rows = NDArray[np.intp]
Ns = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RangeTimes:
    """The ranges of one name at one depth; those in steps are of the measured steps."""

    name: str
    depth: int
    """2 and more inside a phase; from 1 outside steps."""
    in_steps: bool
    inside: str | None
    """The outermost range around most of them: in steps the phase. None for one that is outermost,
    and where a kill has left it unknown."""
    calls: int
    per_step_ns: NDArray[np.float64]
    """Its time summed within a step, for each step that has it; empty outside steps."""
    total_ns: int


def time_ranges(trace: Trace, steps: StepTimes) -> tuple[tuple[RangeTimes, ...], int]:
    """The ranges inside phases and outside steps, most time first, and how many were left out."""
    ranges = trace.ranges
    inside = np.flatnonzero((ranges.depth >= 2) & (ranges.step >= 0))
    place = places_of(ranges.step[inside], steps.step)
    outside = np.flatnonzero((ranges.depth >= 1) & (ranges.step < 0))
    found = [*_groups(trace, inside[place >= 0]), *_groups(trace, outside)]
    found.sort(key=lambda rows: -int(_duration_ns(trace, rows).sum()))
    phases = np.flatnonzero(ranges.depth == 1)
    made = tuple(_times(trace, rows, phases, steps) for rows in found[:MAX_RANGES])
    return made, len(found) - len(made)


def _duration_ns(trace: Trace, rows: Rows) -> Ns:
    return trace.ranges.end_ns[rows] - trace.ranges.start_ns[rows]


def _groups(trace: Trace, rows: Rows) -> list[Rows]:
    """The rows by name and depth, each group in its old order."""
    if not len(rows):
        return []
    name_id = few_names(trace.ranges.name_id[rows], len(trace.names))
    key = name_id * (_DEEPEST + 1) + np.minimum(trace.ranges.depth[rows], _DEEPEST)
    numbers = np.cumsum(np.bincount(key) > 0) - 1  # dense, so that the sort below is a short one
    group = numbers[key]
    group = group.astype(np.int16) if group.max() < 1 << 15 else group
    order = np.argsort(group, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(group[order])) + 1)


def _times(trace: Trace, rows: Rows, phases: Rows, steps: StepTimes) -> RangeTimes:
    ranges = trace.ranges
    first = rows[0]
    duration_ns = _duration_ns(trace, rows)
    in_steps = bool(ranges.step[first] >= 0)
    per_step_ns = np.zeros(0)
    if in_steps:
        place = places_of(ranges.step[rows], steps.step)
        if (np.diff(place) < 0).any():
            order = np.argsort(place, kind="stable")
            place, duration_ns = place[order], duration_ns[order]
        begins = np.flatnonzero(np.diff(place, prepend=-1))
        per_step_ns = np.add.reduceat(duration_ns, begins).astype(np.float64)
    return RangeTimes(
        name=trace.name(int(ranges.name_id[first])),
        depth=int(ranges.depth[first]),
        in_steps=in_steps,
        inside=_inside(trace, rows, phases) if ranges.depth[first] > 1 else None,
        calls=len(rows),
        per_step_ns=per_step_ns,
        total_ns=int(duration_ns.sum()),
    )


def _inside(trace: Trace, rows: Rows, phases: Rows) -> str | None:
    """The name of the outermost range around most of the rows."""
    ranges = trace.ranges
    # rows stand in the order in which they closed: the next of depth 1 is around a row, or none is
    place = np.searchsorted(phases, rows)
    rows, place = rows[place < len(phases)], place[place < len(phases)]
    around = phases[place]
    holds = ranges.step[around] == ranges.step[rows]
    holds &= ranges.start_ns[around] <= ranges.start_ns[rows]
    holds &= ranges.end_ns[around] >= ranges.end_ns[rows]
    if not holds.any():
        return None
    name_id = few_names(ranges.name_id[around[holds]], len(trace.names))
    return trace.name(int(np.argmax(np.bincount(name_id))))
