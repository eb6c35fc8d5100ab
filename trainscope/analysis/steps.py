"""Steps and phases: which steps count, and how long they and their phases took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.trace.ranges import Ranges
from trainscope.trace.trace import Trace

__all__ = [
    "LONG_OVER_MEDIAN",
    "PhaseTimes",
    "StepTimes",
    "few_names",
    "places_of",
    "ranges_per_step",
    "time_phases",
    "time_steps",
]

WARM_UP_FROM_STEPS = 5
"""From this many steps on the first is left out: it allocates, compiles and tunes."""
LONG_OVER_MEDIAN = 5
"""From over this many times the median a step is a long one: it does something that others do not,
and shares of all time would show that and nothing else."""
ENOUGH_BEFORE = 10
"""From so many steps before a window whose profiler stayed, those after it are left out."""
MAX_PHASES = 40
"""Phase names reported, by total time; a name made anew each step would give as many as steps."""

Ns = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepTimes:
    """The steps of a trace; the arrays hold the measured ones, in order of their number."""

    count: int
    """All steps that ended."""
    step: Ns
    start_ns: Ns
    duration_ns: Ns
    left_out_warm_up: int
    left_out_captured: int
    left_out_slowed: int = 0

    @property
    def is_long(self) -> NDArray[np.bool_]:
        """For each measured step, whether it took more than `LONG_OVER_MEDIAN` times the median."""
        if not len(self.step):
            return np.zeros(0, dtype=bool)
        return self.duration_ns > LONG_OVER_MEDIAN * float(np.median(self.duration_ns))


@dataclass(frozen=True, eq=False)
class PhaseTimes:
    """One phase over the measured steps that have it."""

    name: str
    per_step_ns: NDArray[np.float64]
    """Its time summed within a step, for each step that has it; whole nanoseconds."""
    total_ns: int
    share: float
    """Of the time of the measured steps that are no long ones."""
    first_offset_ns: float
    """Mean time from a step's start to the phase's first: the order of phases in a step."""


def time_steps(trace: Trace) -> StepTimes:
    """Durations of the steps, without the first of five and more, and without captured ones.

    Where that would leave none, captured steps are kept. The steps after a window whose profiler
    stayed in the process are left out too, if enough remain before it.
    """
    ranges = trace.ranges
    rows = np.flatnonzero((ranges.depth == 0) & (ranges.step >= 0))
    rows = rows[np.argsort(ranges.step[rows], kind="stable")]
    step = ranges.step[rows]
    measured = np.ones(len(rows), dtype=bool)
    if len(rows) >= WARM_UP_FROM_STEPS:
        measured[0] = False
    warm_up = int(len(rows) - measured.sum())
    free = measured & ~_in_windows(step, trace)
    if free.any():
        measured = free
    captured = len(rows) - warm_up - int(measured.sum())
    slowed = measured & (step > _profiler_stayed_after(trace))
    if (measured & ~slowed).sum() >= ENOUGH_BEFORE:
        measured &= ~slowed
    kept = rows[measured]
    return StepTimes(
        count=len(rows),
        step=ranges.step[kept],
        start_ns=ranges.start_ns[kept],
        duration_ns=ranges.end_ns[kept] - ranges.start_ns[kept],
        left_out_warm_up=warm_up,
        left_out_captured=captured,
        left_out_slowed=len(rows) - warm_up - captured - len(kept),
    )


def time_phases(trace: Trace, steps: StepTimes) -> tuple[PhaseTimes, ...]:
    """The phases of the measured steps, in the order in which a step passes through them."""
    if not len(steps.step):
        return ()
    ranges = trace.ranges
    rows = np.flatnonzero((ranges.depth == 1) & (ranges.step >= 0))
    place = places_of(ranges.step[rows], steps.step)
    rows, place = rows[place >= 0], place[place >= 0]
    if not len(rows):
        return ()
    duration_ns = ranges.end_ns[rows] - ranges.start_ns[rows]
    usual = ~steps.is_long
    usual_ns = max(int(steps.duration_ns[usual].sum()), 1)
    name_id = few_names(ranges.name_id[rows], len(trace.names))
    total_ns = np.bincount(name_id, weights=duration_ns)
    longest = np.argsort(-total_ns, kind="stable")[:MAX_PHASES]
    phases = []
    for i in longest[np.isin(longest, name_id)]:
        mine = np.flatnonzero(name_id == i)
        where = place[mine]
        per_step_ns = np.bincount(where, weights=duration_ns[mine], minlength=len(steps.step))
        has = np.bincount(where, minlength=len(steps.step)) > 0
        first = np.diff(where, prepend=-1) != 0  # rows stand in the order in which they closed
        offset_ns = ranges.start_ns[rows[mine[first]]] - steps.start_ns[where[first]]
        phases.append(
            PhaseTimes(
                name=trace.name(int(i)),
                per_step_ns=per_step_ns[has].astype(np.float64),
                total_ns=int(total_ns[i]),
                share=float(per_step_ns[usual].sum()) / usual_ns,
                first_offset_ns=float(offset_ns.mean()),
            )
        )
    return tuple(sorted(phases, key=lambda phase: phase.first_offset_ns))


def ranges_per_step(ranges: Ranges, steps: StepTimes) -> float:
    """Mean number of ranges inside a step, the step itself left out."""
    inside = int(((ranges.depth > 0) & (ranges.step >= 0)).sum())
    return inside / steps.count if steps.count else 0.0


def few_names(name_id: Ns, names: int) -> Ns:
    """The ids with those past the list of names put together, so that no table grows with them."""
    return np.minimum(name_id, names)


def places_of(step: Ns, kept: Ns) -> Ns:
    """Where each ``step`` stands in the sorted ``kept``; -1 where it does not."""
    if not len(kept):
        return np.full(len(step), -1)
    if (np.diff(kept) == 1).all():  # no gap: no search
        inside = (step >= kept[0]) & (step <= kept[-1])
        return np.where(inside, step - kept[0], -1)
    place = np.minimum(np.searchsorted(kept, step), len(kept) - 1)
    return np.where(kept[place] == step, place, -1)


def _in_windows(step: Ns, trace: Trace) -> NDArray[np.bool_]:
    """True for steps that a profiler was slowing down."""
    inside = np.zeros(len(step), dtype=bool)
    for window in trace.captures.windows if trace.captures is not None else ():
        inside |= (step >= window.first_step) & (step <= window.last_step)
    return inside


def _profiler_stayed_after(trace: Trace) -> int:
    """The last step before a profiler that stayed slowed all that came."""
    windows = trace.captures.windows if trace.captures is not None else ()
    return min((window.last_step for window in windows if window.stays), default=2**63 - 1)
