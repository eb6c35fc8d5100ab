"""How much of a window is replayed: what a replay takes grows with it, what it tells does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.trace.window import Window

__all__ = ["MAX_LANES", "replayed_steps", "too_large", "within"]

MAX_CALLS = 8_000
MAX_STEPS = 256
MIN_STEPS = 2
_WHOLE = 0.98
"""Share of a turn that ranges cover at least where each is taken for one."""
MAX_WAITS = 10_000
MAX_LANES = 256
"""Streams of a window; a program uses a few, and so does what a profiler records of one."""


def replayed_steps(window: Window, steps: WindowSteps) -> WindowSteps:
    """The first steps, as many as make ``MAX_CALLS`` calls together, two at least.

    Without the last, where ranges cover only a part of a turn and its turn is not known.
    """
    if len(steps) and steps.period_ns[-1] < 0 and steps.covered < _WHOLE:
        steps = steps.first(len(steps) - 1)
    step = steps.of_calls(window)
    calls = np.cumsum(np.bincount(step[step >= 0], minlength=len(steps)))
    count = int(np.searchsorted(calls, MAX_CALLS, side="right"))
    return steps.first(min(max(count, MIN_STEPS), MAX_STEPS))


def within(syncs: Sequence[WindowSync], steps: WindowSteps) -> tuple[WindowSync, ...]:
    """The syncs without those of later steps."""
    return tuple(sync for sync in syncs if sync.step < len(steps))


def too_large(window: Window, syncs: Sequence[WindowSync]) -> str | None:
    """Why the steps of ``syncs`` cannot be replayed, in words; None where they can."""
    waits = sum(sync.step >= 0 for sync in syncs)
    if waits > MAX_WAITS:
        return (
            f"the CPU waits {waits:,} times in the first steps, and a replay follows {MAX_WAITS:,} "
            "at most"
        )
    gpu = window.gpu
    streams = len(np.unique(np.stack((gpu.device, gpu.stream)), axis=1).T)
    if streams <= MAX_LANES:
        return None
    return f"the window has {streams:,} streams, and a replay follows {MAX_LANES} at most"
