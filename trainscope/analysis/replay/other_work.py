"""GPU work that the replayed calls did not enqueue: left over from before, or of other threads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.replay.gpu_side import GpuSide
from trainscope.trace.window import Window

__all__ = ["backlog_ns", "unfollowed_ns"]


def backlog_ns(window: Window, side: GpuSide, first_ns: int, end_ns: int) -> tuple[float, ...]:
    """How long after ``first_ns`` each lane was busy with work enqueued before it."""
    gpu = window.gpu
    early = (gpu.start_ns < end_ns) & ~_enqueued_later(window, side, first_ns)
    found = []
    for lane in side.lanes.values():
        rows = early & (side.lane_of_op == lane)
        last_ns = int(gpu.end_ns[rows].max()) if rows.any() else first_ns
        found.append(float(max(last_ns - first_ns, 0)))
    return tuple(found)


def unfollowed_ns(
    window: Window,
    side: GpuSide,
    in_steps: NDArray[np.bool_],
    followed: NDArray[np.bool_],
    first_ns: int,
    end_ns: int,
) -> int:
    """GPU time, in the busiest lane of it, of work in the steps that no followed thread enqueued.

    ``in_steps`` tells of each op whether a step's call enqueued it, ``followed`` of each thread
    whether its calls are replayed. Work of which the launch is not recorded counts too.
    """
    known = side.call_of_op >= 0
    foreign = known.copy()
    if known.any():
        thread = window.calls.thread[side.call_of_op[known]]
        mine = (thread >= 0) & followed[np.maximum(thread, 0)]
        foreign[known] = ~mine & in_steps[known]
    lost = ~known & _enqueued_later(window, side, first_ns) & (window.gpu.start_ns < end_ns)
    return side.busy_ns(window, np.flatnonzero(foreign | lost))


def _enqueued_later(window: Window, side: GpuSide, from_ns: int) -> NDArray[np.bool_]:
    """Ops enqueued from a moment on: by their launch, else by running after one that was."""
    gpu = window.gpu
    known = side.call_of_op >= 0
    later = known.copy()
    if known.any():
        later[known] = window.calls.start_ns[side.call_of_op[known]] >= from_ns
    for lane in side.lanes.values():
        mine = np.flatnonzero(side.lane_of_op == lane)
        begun = gpu.start_ns[mine[later[mine]]]
        if len(begun):
            later[mine] |= ~known[mine] & (gpu.start_ns[mine] > begun.min())
    return later
