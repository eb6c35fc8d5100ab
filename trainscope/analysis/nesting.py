"""What lies around what on a CPU thread: depths of nested spans, and the spans around a moment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainscope.trace.window import Column, Spans

__all__ = ["DEEPEST", "Around", "depths", "rows_by_thread"]

DEEPEST = 1000
"""Levels looked at: a recursion deeper than this is cut, so that no table grows with it."""


def depths(spans: Spans) -> Column:
    """How many spans of its thread are open where each begins; 0 for an outermost one.

    Counted as the spans begun before less those ended before, which is exact for nested spans.
    """
    depth = np.zeros(len(spans), dtype=np.int64)
    for rows in rows_by_thread(spans.thread, at_least=2):
        depth[rows] = _depths_of_thread(spans, rows)
    return depth


def _depths_of_thread(spans: Spans, rows: Column) -> Column:
    ends = np.sort(np.maximum(spans.end_ns[rows], spans.start_ns[rows] + 1))
    closed = np.searchsorted(ends, spans.start_ns[rows], side="right")
    return np.maximum(np.arange(len(rows)) - closed, 0)


class Around:
    """Finds the spans that are open around stretches of CPU threads."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._order = np.argsort(spans.thread, kind="stable")
        self._threads = spans.thread[self._order]
        self._levels: dict[int, list[Column]] = {}

    def _levels_of(self, thread: int) -> list[Column]:
        """Rows of a thread by their depth, outermost first; worked out when first asked for."""
        found = self._levels.get(thread)
        if found is None:
            first, last = np.searchsorted(self._threads, (thread, thread + 1))
            rows = self._order[first:last]
            depth = _depths_of_thread(self._spans, rows)
            order = np.argsort(depth, kind="stable")
            cuts = np.flatnonzero(np.diff(depth[order])) + 1
            found = np.split(rows[order], cuts)[:DEEPEST] if len(rows) else []
            self._levels[thread] = found
        return found

    def path(self, thread: Column, start_ns: Column, end_ns: Column) -> Column:
        """Rows of the spans around each stretch, outermost first: one line a stretch, -1 for none.

        A line may have -1 between rows, where another span stands at that depth.
        """
        asked = [
            (lines, self._levels_of(int(thread[lines[0]]))) for lines in rows_by_thread(thread)
        ]
        width = max((len(levels) for _, levels in asked), default=0)
        found = np.full((len(thread), width), -1, dtype=np.int64)
        for lines, levels in asked:
            for level, rows in enumerate(levels):
                found[lines, level] = self._at(rows, start_ns[lines], end_ns[lines])
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
        for asked in rows_by_thread(thread):
            for rows in self._levels_of(int(thread[asked[0]])):
                yield asked, rows

    def _at(self, rows: Column, start_ns: Column, end_ns: Column) -> Column:
        """Of spans of one thread and depth, the row around each stretch; -1 for none."""
        spans = self._spans
        place = np.searchsorted(spans.start_ns[rows], start_ns, side="right") - 1
        row = rows[np.maximum(place, 0)]
        inside = (place >= 0) & (spans.end_ns[row] >= end_ns) & (spans.end_ns[row] > start_ns)
        return np.where(inside, row, -1)


def rows_by_thread(thread: Column, at_least: int = 1) -> Iterator[Column]:
    """The rows of each thread that has so many, in their order."""
    order = np.argsort(thread, kind="stable")
    edges = np.flatnonzero(np.diff(thread[order], prepend=-2, append=-2))
    many = np.diff(edges) >= at_least
    for first, last in zip(edges[:-1][many].tolist(), edges[1:][many].tolist(), strict=True):
        yield order[first:last]
