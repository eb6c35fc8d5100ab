"""What is known of the values that have arrived: the newest of each name, and the bad ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

from trainscope.metrics.warn import warn
from trainscope.trace.metrics import MetricRecord

__all__ = ["NONFINITE_LIMIT", "Arrivals"]

NONFINITE_LIMIT = 100
"""A diverged run is all NaN: the first ones tell where it began."""


class Arrivals:
    """Written by the worker alone; the loop reads single attributes."""

    def __init__(self) -> None:
        self.latest: dict[str, float | int] = {}
        self.nonfinite: list[tuple[str, int, float]] = []
        self.nonfinite_count = 0

    def take(self, records: Sequence[MetricRecord]) -> None:
        """Note the newest values and the first non-finite ones; warn at the very first."""
        for record in records:
            self.latest.update(record.values)
        if _surely_finite(records):
            return
        for record in records:
            for name, value in record.values.items():
                if isinstance(value, float) and not math.isfinite(value):
                    self._note(name, record.step, value)

    def _note(self, name: str, step: int, value: float) -> None:
        self.nonfinite_count += 1
        if len(self.nonfinite) < NONFINITE_LIMIT:
            self.nonfinite.append((name, step, value))
        if self.nonfinite_count == 1:
            warn(f"metric {name!r} is {value} at step {step}; later ones are counted, not warned")


def _surely_finite(records: Sequence[MetricRecord]) -> bool:
    """Whether all values are finite; False as well where the look at each has to tell."""
    # a sum takes a tenth of that look, on a thread that shares the loop's interpreter
    try:
        total = sum(chain.from_iterable(record.values.values() for record in records))
        return math.isfinite(total)
    except OverflowError:  # an integer that no float can hold
        return False
