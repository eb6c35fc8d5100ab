"""From sealed generations to sinks: what the worker does for the metrics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from trainscope.metrics.arrivals import Arrivals
from trainscope.metrics.generation import Generation
from trainscope.metrics.outlet import Outlet
from trainscope.metrics.records import MetricRecord
from trainscope.metrics.reduce import Intervals
from trainscope.metrics.warn import warn

__all__ = ["Delivery"]

_PAUSE_S = 0.0002
"""Between two parts, so that a loop that waits for the interpreter gets on."""


class Delivery:
    """Fetches sealed generations in order, reads them once landed, and hands the records on.

    ``hand_over`` may be called by any thread, ``take_free`` by the one that logs, the rest by one
    thread at a time: the worker, or the closing thread when there is none.
    """

    def __init__(
        self,
        generations: Sequence[Generation],
        arrivals: Arrivals,
        intervals: Intervals | None,
        outlets: Sequence[Outlet],
    ) -> None:
        self._free = deque(generations)
        self._sealed: deque[Generation] = deque()
        self._flying: deque[Generation] = deque()
        self._arrivals = arrivals
        self._intervals = intervals
        self._outlets = outlets
        self.handed_over = 0
        self.done = 0
        self.calls_written = 0
        self.calls_lost = 0
        self._told_fault = False

    def take_free(self) -> Generation | None:
        """Return an empty generation, or None when all are on their way."""
        return self._free.popleft() if self._free else None

    @property
    def has_free(self) -> bool:
        """Whether an empty generation is at hand."""
        return bool(self._free)

    def hand_over(self, generation: Generation) -> None:
        """Queue a sealed generation."""
        self.handed_over += 1
        self._sealed.append(generation)

    @property
    def outstanding(self) -> bool:
        """Whether a sealed generation has not been handed on yet."""
        return self.done < self.handed_over

    def calls_outstanding(self) -> int:
        """How many ``log`` calls the outstanding generations hold."""
        return sum(len(g.entries) for queue in (self._flying, self._sealed) for g in tuple(queue))

    def advance(self) -> bool:
        """Fetch what was sealed, hand on what has landed; True while copies are on their way."""
        while self._sealed:
            generation = self._sealed.popleft()
            try:
                generation.fetch()
            except Exception as fault:
                self._give_up(generation, fault)
            else:
                self._flying.append(generation)
        while self._flying:
            generation = self._flying[0]
            try:
                if not generation.landed():
                    break
                for part, records in enumerate(generation.read()):
                    if part and not self._sealed and len(self._flying) == 1:
                        time.sleep(_PAUSE_S)  # more waiting means that the loop does get on
                    self._hand_on(records)
            except Exception as fault:
                self._flying.popleft()
                self._give_up(generation, fault)
            else:
                self._flying.popleft()
                self.calls_written += len(generation.entries)
                self._recycle(generation)
        return bool(self._flying)

    def finish(self) -> None:
        """After the last generation: hand on the interval that is still open."""
        if self._intervals is not None:
            self._offer(self._intervals.finish())

    def _hand_on(self, records: list[MetricRecord]) -> None:
        self._arrivals.take(records)
        self._offer(records if self._intervals is None else self._intervals.add(records))

    def _offer(self, records: Sequence[MetricRecord]) -> None:
        for outlet in self._outlets:
            outlet.offer(records)

    def _recycle(self, generation: Generation) -> None:
        generation.reset()
        self._free.append(generation)
        self.done += 1

    def _give_up(self, generation: Generation, fault: Exception) -> None:
        self.calls_lost += len(generation.entries)
        self._recycle(generation)
        if not self._told_fault:
            self._told_fault = True
            warn(f"logged values could not be fetched and are dropped and counted: {fault!r}")
