"""The columns of a trace: when each step, phase and range began and ended on the loop's thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from trainscope.trace.window import Column

__all__ = ["ROW_BYTES", "ROW_FIELDS", "Ranges", "Row"]

ROW_FIELDS = ("step", "name_id", "depth", "start_ns", "end_ns")
ROW_BYTES = 8 * len(ROW_FIELDS)

Row = tuple[int, int, int, int, int]
"""The numbers of ROW_FIELDS; depth 0 is the step itself, step -1 is outside."""


@dataclass(frozen=True, eq=False)
class Ranges:
    """Five int64 columns of one length, in the order in which the ranges closed.

    ``depth`` is 0 for a step itself, 1 for a phase, more for ranges inside; ``step`` is -1 outside
    a step; ``name_id`` is a place in ``Trace.names``; times are ``time.perf_counter_ns()``.
    """

    step: Column
    name_id: Column
    depth: Column
    start_ns: Column
    end_ns: Column

    def __len__(self) -> int:
        return len(self.step)

    @property
    def duration_ns(self) -> Column:
        """``end_ns - start_ns`` of each range."""
        return self.end_ns - self.start_ns

    def given_their_step(self) -> Ranges:
        """The same ranges; one of no step that lies in the time of a step is that step's.

        That the first turn of a loop is a step is known when it trains, at its end for a rollout;
        the ranges that it had closed by then were written as in none.
        """
        loose, steps = np.flatnonzero(self.step < 0), np.flatnonzero(self.depth == 0)
        if not len(loose) or not len(steps):
            return self
        steps = steps[np.argsort(self.start_ns[steps], kind="stable")]
        before = np.searchsorted(self.start_ns[steps], self.start_ns[loose], side="right") - 1
        inside = (before >= 0) & (self.end_ns[loose] <= self.end_ns[steps[before]])
        step = self.step.copy()
        step[loose[inside]] = self.step[steps[before[inside]]]
        return replace(self, step=step)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Ranges:
        """Columns of rows ``(step, name_id, depth, start_ns, end_ns)``."""
        table = np.array(list(rows), dtype=np.int64).reshape(-1, len(ROW_FIELDS))
        return cls(*np.ascontiguousarray(table.T))
