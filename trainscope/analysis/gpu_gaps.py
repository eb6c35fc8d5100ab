"""Gaps of a GPU: when no op ran on any of its streams, and whether the CPU was late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.intervals import Intervals, union
from trainscope.analysis.launched_by import calls_of_ops
from trainscope.trace.window import Column, Window

__all__ = ["USUAL_LATENCY_NS", "Gaps", "find_gaps"]

USUAL_LATENCY_NS = 8_000
"""From the start of a launch to the start of its kernel on an idle GPU, where a window has no such
launch: about what an H200 takes."""

_ENOUGH = 20


@dataclass(frozen=True, eq=False)
class Gaps:
    """Stretches in which a device ran nothing, in time order."""

    busy: Intervals
    start_ns: Column
    """When the device drained."""
    end_ns: Column
    """When the next op began."""
    next_op: Column
    """Row of that op in ``Window.gpu``; -1 after the last."""
    next_call: Column
    """Row of the call that enqueued it; -1 where none is recorded."""
    called_ns: Column
    """When that call began; the end of the gap where there is none."""
    late: NDArray[np.bool_]
    """Whether the op began only then because its call came so late. False where it had been
    enqueued before, so that the GPU itself took the time, and where no call is recorded."""
    latency_ns: int
    """From the start of a call to the start of its op where the GPU was idle: the median."""


def find_gaps(window: Window, device: int, start_ns: int, end_ns: int) -> Gaps:
    """The gaps of a device between two moments, the stretches before its first op and after its
    last among them.

    An op is late where it would have begun after the device drained even on an idle GPU: its call
    began less than the usual latency before that, or after it.
    """
    gpu = window.gpu
    rows = np.flatnonzero(gpu.device == device)
    busy = union(gpu.start_ns[rows], gpu.end_ns[rows])
    longer = rows[gpu.end_ns[rows] > gpu.start_ns[rows]]
    first = longer[np.searchsorted(gpu.start_ns[longer], busy.start_ns)]
    drained_ns = np.concatenate(([start_ns], busy.end_ns))
    begins_ns = np.concatenate((busy.start_ns, [end_ns]))
    next_op = np.concatenate((first, [-1]))
    drained_ns = np.maximum(drained_ns, start_ns)
    begins_ns, next_op = _cut(begins_ns, next_op, end_ns)
    some = begins_ns > drained_ns
    drained_ns, begins_ns, next_op = drained_ns[some], begins_ns[some], next_op[some]

    known = next_op >= 0
    next_call = np.full(len(next_op), -1, dtype=np.int64)
    next_call[known] = calls_of_ops(window)[next_op[known]]
    called = next_call >= 0
    called_ns = begins_ns.copy()
    called_ns[called] = np.minimum(window.calls.start_ns[next_call[called]], begins_ns[called])
    waited = called & (called_ns >= drained_ns)
    taken_ns = (begins_ns - called_ns)[waited]
    latency_ns = int(np.median(taken_ns)) if len(taken_ns) else USUAL_LATENCY_NS
    if len(taken_ns) < _ENOUGH:  # perhaps all after long pauses, when the first launch takes longer
        latency_ns = min(latency_ns, USUAL_LATENCY_NS)
    return Gaps(
        busy=busy,
        start_ns=drained_ns,
        end_ns=begins_ns,
        next_op=next_op,
        next_call=next_call,
        called_ns=called_ns,
        late=(called & (called_ns + latency_ns > drained_ns)) | ~known,
        latency_ns=latency_ns,
    )


def _cut(begins_ns: Column, next_op: Column, end_ns: int) -> tuple[Column, Column]:
    """A gap in which the stretch ends has no next op in it."""
    return np.minimum(begins_ns, end_ns), np.where(begins_ns < end_ns, next_op, -1)
