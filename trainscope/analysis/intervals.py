"""Sets of time as disjoint intervals in order: unions, what they cover, how much of a stretch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.trace.window import Column

__all__ = ["Intervals", "union"]


@dataclass(frozen=True, eq=False)
class Intervals:
    """Disjoint half-open intervals in the order of their starts; none touches the next."""

    start_ns: Column
    end_ns: Column

    def __len__(self) -> int:
        return len(self.start_ns)

    def at(self, time_ns: Column) -> Column:
        """The place of the interval around each moment; -1 for none."""
        if not len(self):
            return np.full(len(time_ns), -1, dtype=np.int64)
        place = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        inside = (place >= 0) & (time_ns < self.end_ns[np.maximum(place, 0)])
        return np.where(inside, place, -1)

    def covers(self, time_ns: Column) -> NDArray[np.bool_]:
        """Whether each moment is in one of them."""
        return self.at(time_ns) >= 0

    def before_ns(self, time_ns: Column) -> Column:
        """How much of them lies before each moment."""
        if not len(self):
            return np.zeros(len(time_ns), dtype=np.int64)
        length_ns = self.end_ns - self.start_ns
        total_ns = np.concatenate(([0], np.cumsum(length_ns)))
        place = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        last = np.maximum(place, 0)
        into_ns = np.minimum(time_ns - self.start_ns[last], length_ns[last])
        return np.where(place >= 0, total_ns[last] + into_ns, 0)

    def filled(self, shorter_than_ns: int) -> Intervals:
        """The same with the gaps between them closed that are shorter than that."""
        if len(self) < 2:
            return self
        apart = self.start_ns[1:] - self.end_ns[:-1] >= shorter_than_ns
        return Intervals(
            self.start_ns[np.concatenate(([True], apart))],
            self.end_ns[np.concatenate((apart, [True]))],
        )


def union(start_ns: Column, end_ns: Column) -> Intervals:
    """What intervals in any order cover together; those without length cover nothing."""
    some = end_ns > start_ns
    start_ns, end_ns = start_ns[some], end_ns[some]
    if not len(start_ns):
        return Intervals(start_ns, end_ns)
    if (np.diff(start_ns) < 0).any():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    reach_ns = np.maximum.accumulate(end_ns)
    apart = start_ns[1:] > reach_ns[:-1]
    return Intervals(
        start_ns[np.concatenate(([True], apart))], reach_ns[np.concatenate((apart, [True]))]
    )
