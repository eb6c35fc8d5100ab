"""What a window tells of the CPU for its replay: what recording cost it, what only reads values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.nesting import Around
from trainscope.analysis.window_syncs import WindowSync
from trainscope.trace.window import Column, Window

__all__ = ["READS", "Boundaries", "Read", "boundaries", "loader_waits", "reads"]

READS = ("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense")
"""Operators that do nothing but bring a value to the CPU: without the read they are gone."""
_RANGE_WEIGHT, _FRAME_WEIGHT = 4.0, 0.25
"""What recording an annotation of torch (which goes through Python) or a Python function costs,
over what an operator's costs."""
_NVTX_WEIGHT = 1.0
_QUIET_NS = 100_000
"""CPU time with no event in it for so long is sleep or computation, which profiling hardly
slows."""
_LOADER = "_MultiProcessingDataLoaderIter.__next__"
_LOADER_WAIT_NS = 500_000
"""Taking a batch that is there takes less."""


@dataclass(frozen=True, eq=False)
class Boundaries:
    """Where recorded events of the loop's threads begin or end, in time order."""

    time_ns: Column
    weight_before: NDArray[np.float64]
    """Sum of the weights of those before each, with one more entry for all."""

    def between(self, from_ns: int, until_ns: int) -> float:
        """How many there are in a stretch, each by its weight; an operator's is 1."""
        if until_ns <= from_ns:
            return 0.0
        first, last = np.searchsorted(self.time_ns, (from_ns, until_ns))
        return float(self.weight_before[last] - self.weight_before[first])

    def quiet_ns(self, from_ns: int, until_ns: int) -> int:
        """How much of a stretch lies between events so far apart that recording hardly counts."""
        if until_ns - from_ns <= _QUIET_NS:
            return 0
        first, last = np.searchsorted(self.time_ns, (from_ns, until_ns))
        apart = np.diff(self.time_ns[first:last], prepend=from_ns, append=until_ns)
        return int(apart[apart > _QUIET_NS].sum())


@dataclass(frozen=True)
class Read:
    """An operator that is only there to read a value."""

    start_ns: int
    end_ns: int
    call: int
    """Row of the call in it that waits."""


def boundaries(window: Window, threads: NDArray[np.bool_]) -> Boundaries:
    """Those of operators, ranges and Python functions on the chosen threads."""
    times, weights = [], []
    of_range = _NVTX_WEIGHT if window.source == "nsys" else _RANGE_WEIGHT
    for spans, weight in (
        (window.ops, 1.0),
        (window.ranges, of_range),
        (window.frames, _FRAME_WEIGHT),
    ):
        if not len(spans) or not len(threads):
            continue
        mine = (spans.thread >= 0) & threads[np.maximum(spans.thread, 0)]
        for moment in (spans.start_ns[mine], spans.end_ns[mine]):
            times.append(moment)
            weights.append(np.full(len(moment), weight))
    if not times:
        return Boundaries(np.empty(0, dtype=np.int64), np.zeros(1))
    moments, weight = np.concatenate(times), np.concatenate(weights)
    order = np.argsort(moments, kind="stable")
    return Boundaries(moments[order], np.concatenate(([0.0], np.cumsum(weight[order]))))


def reads(window: Window, syncs: Sequence[WindowSync]) -> list[Read]:
    """The outermost reading operator around each wait that has one."""
    ops = window.ops
    if not syncs or not len(ops):
        return []
    around = Around(ops).path(
        np.array([sync.thread for sync in syncs]),
        np.array([sync.start_ns for sync in syncs]),
        np.array([sync.end_ns for sync in syncs]),
    )
    found = []
    for sync, path in zip(syncs, around.tolist(), strict=True):
        outer = next(
            (row for row in path if row >= 0 and window.names[int(ops.name_id[row])] in READS), -1
        )
        if outer >= 0:
            found.append(Read(int(ops.start_ns[outer]), int(ops.end_ns[outer]), sync.call))
    return found


def loader_waits(
    window: Window, thread: int, begin_ns: int, end_ns: int
) -> tuple[int, list[tuple[int, int]]]:
    """How often a thread takes a batch of a DataLoader's workers, and where it waits for one.

    Where it mostly waits, the workers set the pace, and a loop that does less waits longer.
    Of each fetch it is the longest stretch with nothing recorded in it; none where half of them
    found a batch.
    """
    names = [place for place, name in enumerate(window.names) if _LOADER in name[:200]]
    found, fetches = [], 0
    for spans in (window.ranges, window.ops):
        mine = np.isin(spans.name_id, names) & (spans.thread == thread)
        mine &= (spans.start_ns >= begin_ns) & (spans.end_ns <= end_ns)
        for row in np.flatnonzero(mine).tolist():
            fetches += 1
            begin, end = int(spans.start_ns[row]), int(spans.end_ns[row])
            quiet = _longest_quiet(window, thread, begin, end)
            if quiet[1] - quiet[0] >= _LOADER_WAIT_NS:
                found.append(quiet)
    return fetches, sorted(found) if 2 * len(found) > fetches else []


def _longest_quiet(window: Window, thread: int, begin_ns: int, end_ns: int) -> tuple[int, int]:
    """The longest part of a stretch in which no event of a thread begins or ends."""
    moments = [np.array([begin_ns, end_ns])]
    for table in (window.ops, window.ranges, window.calls):
        mine = table.thread == thread
        moments += [table.start_ns[mine], table.end_ns[mine]]
    every = np.unique(np.concatenate(moments))
    inside = every[(every >= begin_ns) & (every <= end_ns)]
    longest = int(np.argmax(np.diff(inside)))
    return int(inside[longest]), int(inside[longest + 1])
