"""The ranges of a captured window as those of a live recording, for the same analyses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainscope.analysis.nesting import depths
from trainscope.analysis.ranges import RangeTimes, time_ranges
from trainscope.analysis.steps import StepTimes
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.ranges import Ranges
from trainscope.trace.trace import Trace
from trainscope.trace.window import Window

__all__ = ["as_live_ranges", "time_window_ranges"]


def time_window_ranges(
    trace: Trace, window: Window, steps: WindowSteps
) -> tuple[tuple[RangeTimes, ...], int]:
    """The ranges inside phases and outside steps, as ``time_ranges`` gives them, of a window."""
    recorded = replace(trace, ranges=as_live_ranges(window, steps), names=window.names)
    times = StepTimes(
        count=len(steps),
        step=np.arange(len(steps)),
        start_ns=steps.start_ns,
        duration_ns=steps.until_ns - steps.start_ns,
        left_out_warm_up=0,
        left_out_captured=0,
    )
    return time_ranges(recorded, times)


def as_live_ranges(window: Window, steps: WindowSteps) -> Ranges:
    """The ranges of the steps' thread, in the order in which they closed; steps by their place.

    A range around steps is outside them, and so is one that goes on into the next step.
    """
    ranges = window.ranges
    depth = depths(ranges)
    rows = np.flatnonzero((ranges.thread == steps.thread) & (ranges.end_ns >= ranges.start_ns))
    rows = rows[(ranges.name_id[rows] >= 0) & (ranges.name_id[rows] < len(window.names))]
    own = steps.rows if steps.rows is not None else rows[:0]
    rows = rows[~np.isin(rows, own)]
    rows = rows[np.lexsort((-ranges.start_ns[rows], ranges.end_ns[rows]))]
    start_ns, end_ns, level = ranges.start_ns[rows], ranges.end_ns[rows], depth[rows] + 1
    step = steps.at(start_ns)
    if len(steps):
        place = np.maximum(step, 0)
        step = np.where((step >= 0) & (end_ns <= steps.until_ns[place]), step, -1)
        within = (start_ns < steps.end_ns[place]).astype(np.int64)
        of_step = np.maximum(level - depth[own[place]] - within, 1)
        level = np.where(step >= 0, of_step, level)
    return Ranges(step, ranges.name_id[rows], level, start_ns, end_ns)
