"""What lies around what on a CPU thread: depths of nested spans, and the spans around a moment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainscope.trace.window import Column, Spans

__all__ = ["DEEPEST", "Around", "depths"]

DEEPEST = 1000
"""Levels looked at: a recursion deeper than this is cut, so that no table grows with it."""


def depths(spans: Spans) -> Column:
    """How many spans of its thread are open where each begins; 0 for an outermost one.

    Counted as the spans begun before less those ended before, which is exact for nested spans.
    """
    depth = np.zeros(len(spans), dtype=np.int64)
    for rows in _by_thread(spans.thread):
        ends = np.sort(np.maximum(spans.end_ns[rows], spans.start_ns[rows] + 1))
        closed = np.searchsorted(ends, spans.start_ns[rows], side="right")
        depth[rows] = np.maximum(np.arange(len(rows)) - closed, 0)
    return depth


class Around:
    """Finds the spans that are open around stretches of CPU threads."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._levels: dict[int, list[Column]] = {}
        depth = depths(spans)
        for rows in _by_thread(spans.thread):
            levels = depth[rows]
            order = np.argsort(levels, kind="stable")
            cuts = np.flatnonzero(np.diff(levels[order])) + 1
            self._levels[int(spans.thread[rows[0]])] = np.split(rows[order], cuts)[:DEEPEST]

    def path(self, thread: Column, start_ns: Column, end_ns: Column) -> Column:
        """Rows of the spans around each stretch, outermost first: one line a stretch, -1 for none.

        A line may have -1 between rows, where another span stands at that depth.
        """
        width = max((len(levels) for levels in self._levels.values()), default=0)
        found = np.full((len(thread), width), -1, dtype=np.int64)
        for which, levels in self._levels.items():
            asked = np.flatnonzero(thread == which)
            if len(asked):
                for level, rows in enumerate(levels):
                    found[asked, level] = self._at(rows, start_ns[asked], end_ns[asked])
        return found

    def outermost(self, thread: Column, start_ns: Column, end_ns: Column) -> Column:
        """Row of the outermost span around each stretch; -1 for none."""
        found = np.full(len(thread), -1, dtype=np.int64)
        for asked, rows in self._asked(thread):
            open_ones = asked[found[asked] < 0]
            found[open_ones] = self._at(rows, start_ns[open_ones], end_ns[open_ones])
        return found

    def innermost(self, thread: Column, start_ns: Column, end_ns: Column) -> Column:
        """Row of the innermost span around each stretch; -1 for none."""
        found = np.full(len(thread), -1, dtype=np.int64)
        for asked, rows in self._asked(thread):
            here = self._at(rows, start_ns[asked], end_ns[asked])
            found[asked] = np.where(here >= 0, here, found[asked])
        return found

    def _asked(self, thread: Column) -> Iterator[tuple[Column, Column]]:
        """The stretches of each thread with the spans of each of its depths, outermost first."""
        for which, levels in self._levels.items():
            asked = np.flatnonzero(thread == which)
            for rows in levels if len(asked) else ():
                yield asked, rows

    def _at(self, rows: Column, start_ns: Column, end_ns: Column) -> Column:
        """Of spans of one thread and depth, the row around each stretch; -1 for none."""
        spans = self._spans
        place = np.searchsorted(spans.start_ns[rows], start_ns, side="right") - 1
        row = rows[np.maximum(place, 0)]
        inside = (place >= 0) & (spans.end_ns[row] >= end_ns) & (spans.end_ns[row] > start_ns)
        return np.where(inside, row, -1)


def _by_thread(thread: Column) -> list[Column]:
    """The rows of each thread, in their order."""
    if not len(thread):
        return []
    order = np.argsort(thread, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(thread[order])) + 1)
