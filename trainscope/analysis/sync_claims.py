"""Which idle time of a GPU a sync is to blame for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainscope.analysis.gpu_gaps import Gaps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.trace.window import Column

__all__ = ["Claims", "claim_idle"]


@dataclass(frozen=True, eq=False)
class Claims:
    """Disjoint stretches, in time order, that syncs are to blame for as far as they are idle."""

    start_ns: Column
    end_ns: Column
    sync: Column
    """A place in the syncs."""

    def at(self, time_ns: Column) -> Column:
        """The sync to blame at each moment; -1 for none."""
        if not len(self.sync):
            return np.full(len(time_ns), -1, dtype=np.int64)
        place = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        inside = (place >= 0) & (time_ns < self.end_ns[np.maximum(place, 0)])
        return np.where(inside, self.sync[np.maximum(place, 0)], -1)


def claim_idle(gaps: Gaps, syncs: Sequence[WindowSync], usable: Column) -> Claims:
    """The idle time after each sync, as much of it as the sync held the CPU.

    A sync that held the CPU for H makes everything after it come H later. Without it the first H of
    the idle time that late launches cause after it would not be: first the rest of the wait after
    the GPU drained, then what the CPU did before the GPU was busy again, then the gaps in which it
    was catching up. Idle beyond H would be there without the sync as well: the CPU is too slow. A
    later sync is to blame before an earlier one, which takes what is left. Gaps whose op was
    enqueued in time are no sync's. ``usable`` are places in ``syncs`` that the loop waits in.
    """
    order = sorted((int(i) for i in usable if syncs[i].blocked), key=lambda i: syncs[i].end_ns)
    late = np.flatnonzero(gaps.late)
    late = late[np.argsort(gaps.called_ns[late], kind="stable")]
    if not order or not len(late):
        empty = np.zeros(0, dtype=np.int64)
        return Claims(empty, empty, empty)
    ends_ns = np.array([syncs[i].end_ns for i in order])
    starts_ns = np.array([syncs[i].start_ns for i in order])
    # a gap follows the last sync that ended before its launch, and begins no earlier than it
    follows = np.searchsorted(ends_ns, gaps.called_ns[late], side="right") - 1
    late, follows = late[follows >= 0], follows[follows >= 0]
    begin_ns = np.maximum(gaps.start_ns[late], starts_ns[follows])
    some = gaps.end_ns[late] > begin_ns
    late, follows, begin_ns = late[some], follows[some], begin_ns[some]
    length_ns = gaps.end_ns[late] - begin_ns
    after_ns = np.bincount(follows, weights=length_ns, minlength=len(order)).astype(np.int64)
    # along the idle time put end to end, who takes it from where to where
    left: list[list[int]] = []
    taken: list[tuple[int, int, int]] = []
    at_ns = 0
    for place, sync in enumerate(order):
        left.append([sync, syncs[sync].blocked_ns])
        free_ns = int(after_ns[place])
        from_ns = at_ns
        at_ns += free_ns
        while free_ns and left:
            used_ns = min(free_ns, left[-1][1])
            if used_ns:
                taken.append((from_ns, from_ns + used_ns, left[-1][0]))
            left[-1][1] -= used_ns
            from_ns += used_ns
            free_ns -= used_ns
            if not left[-1][1]:
                left.pop()
    return _in_time(np.array(taken, dtype=np.int64).reshape(-1, 3), begin_ns, length_ns)


def _in_time(taken: Column, begin_ns: Column, length_ns: Column) -> Claims:
    """Stretches along the gaps put end to end, brought back to where the gaps are."""
    ends = np.cumsum(length_ns)
    cuts = np.unique(np.concatenate((taken[:, 0], taken[:, 1], ends - length_ns, ends)))
    cuts = cuts[cuts <= (ends[-1] if len(ends) else 0)]
    first, last = cuts[:-1], cuts[1:]
    by = np.searchsorted(taken[:, 0], first, side="right") - 1
    mine = (by >= 0) & (first < taken[np.maximum(by, 0), 1]) if len(taken) else by >= 0
    gap = np.searchsorted(ends, first, side="right")
    first, last, by, gap = first[mine], last[mine], by[mine], gap[mine]
    shift = begin_ns[gap] - (ends - length_ns)[gap]
    order = np.argsort(first + shift, kind="stable")
    return Claims((first + shift)[order], (last + shift)[order], taken[by, 2][order])
