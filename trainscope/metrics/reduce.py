"""Reduce what was logged over an interval of steps to one record.

The values of every step come to the host anyway (a few bytes each, in the one copy of the flush),
so they are reduced there, by the worker: it adds no launch to the loop, sums in double precision
whatever the metric's dtype, keeps integers exact, and still knows which step held a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from trainscope.errors import ConfigError
from trainscope.trace.metrics import MetricRecord

__all__ = ["Intervals", "check_reduce"]

Number = float | int


def _mean(values: Sequence[Number]) -> Number:
    mean = sum(values) / len(values)
    # a rounded sum may carry it past them: ten learning rates of 0.1 have a mean of 0.1
    return mean if math.isnan(mean) else min(max(mean, min(values)), max(values))


def _last(values: Sequence[Number]) -> Number:
    return values[-1]


def _sum(values: Sequence[Number]) -> Number:
    return sum(values)


def _min(values: Sequence[Number]) -> Number:
    return next((v for v in values if math.isnan(v)), min(values))


def _max(values: Sequence[Number]) -> Number:
    return next((v for v in values if math.isnan(v)), max(values))


_REDUCTIONS: dict[str, Callable[[Sequence[Number]], Number]] = {
    "mean": _mean,
    "last": _last,
    "sum": _sum,
    "min": _min,
    "max": _max,
}


def check_reduce(reduce: str | Mapping[str, str]) -> None:
    """Raise ``ConfigError`` unless ``reduce`` names reductions."""
    for how in (reduce,) if isinstance(reduce, str) else reduce.values():
        if how not in _REDUCTIONS:
            raise ConfigError(
                f"reduce is {how!r}; allowed are {', '.join(map(repr, _REDUCTIONS))}, "
                f"or a mapping from metric name to one of them"
            )


class Intervals:
    """Gathers records and gives one for each interval of ``every`` steps.

    The record of step ``s`` (a multiple of ``every``) holds the values of the steps after
    ``s - every`` up to ``s``; step 0 is an interval of its own. It is given once a record of a
    later interval arrives. ``finish`` gives what is left, under the last step that was logged.
    Names that the mapping ``reduce`` does not hold take their mean. A NaN reduces to NaN.
    """

    def __init__(self, every: int, reduce: str | Mapping[str, str]) -> None:
        self._every = every
        self._reduce = reduce
        self._boundary: int | None = None
        self._last_step = 0
        self._time_unix_ns = 0
        self._values: dict[str, list[Number]] = {}

    def add(self, records: Iterable[MetricRecord]) -> list[MetricRecord]:
        """Take records in the order they were logged; return the intervals they complete."""
        complete: list[MetricRecord] = []
        for record in records:
            boundary = -(-record.step // self._every) * self._every
            if self._boundary is not None and boundary != self._boundary:
                complete.append(self._reduced(self._boundary))
            self._boundary = boundary
            self._last_step = record.step
            self._time_unix_ns = record.time_unix_ns
            for name, value in record.values.items():
                self._values.setdefault(name, []).append(value)
        return complete

    def finish(self) -> list[MetricRecord]:
        """Return the interval that is still open, if any."""
        return [] if self._boundary is None else [self._reduced(self._last_step)]

    def _reduced(self, step: int) -> MetricRecord:
        values = {name: _REDUCTIONS[self._how(name)](found) for name, found in self._values.items()}
        self._boundary = None
        self._values = {}
        return MetricRecord(step, self._time_unix_ns, values)

    def _how(self, name: str) -> str:
        return self._reduce if isinstance(self._reduce, str) else self._reduce.get(name, "mean")
