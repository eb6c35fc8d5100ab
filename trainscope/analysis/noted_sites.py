"""Which line each wait of a window is at, by the times at which the detector noted them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainscope.analysis.kind_families import kinds_meet
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.noted_waits import NotedWait
from trainscope.trace.window import Column

__all__ = ["LiveRecord", "TimedWaits", "lines_of_waits"]

CLOCKS_APART_NS = 200_000
"""How much the distance of the two clocks may vary from step to step: more, and they do not tie."""
LOOSE_NS = 100_000
"""How far a wait may stand outside what the detector timed, at first."""
TIGHT_NS = 30_000
"""And once the usual distance of their ends is known."""
NEIGHBOURS = 2
"""Noted waits looked at on either side of a wait's end."""
SOON_NS = 2_000_000
"""An untimed wait begins so soon after it is told of, or it is another one."""


@dataclass(frozen=True)
class LiveRecord:
    """What was recorded live of the run that a window is of."""

    noted: tuple[NotedWait, ...] = ()
    step_start_ns: Mapping[int, int] | None = None
    """By step number, on the clock of ``noted``."""


@dataclass(frozen=True, eq=False)
class TimedWaits:
    """The waits of a window to be placed, in the order of their starts."""

    start_ns: Column
    end_ns: Column
    kinds: Sequence[str]
    threads: Sequence[str]


def lines_of_waits(
    waits: TimedWaits, steps: WindowSteps, record: LiveRecord
) -> list[NotedWait | None]:
    """For each wait the noted one that it is; None where none or several can be meant."""
    nothing: list[NotedWait | None] = [None] * len(waits.kinds)
    shift_ns = _clock_shift(steps, record)
    if shift_ns is None or not record.noted:
        return nothing
    found = _meet(waits, record.noted, shift_ns, LOOSE_NS)
    late_ns: dict[int, int] = {}  # of the last wait in each noted one
    for end_ns, noted in zip(waits.end_ns.tolist(), found, strict=True):
        if noted is not None and noted.blocked_ns >= 0:
            late_ns[id(noted)] = end_ns - noted.end_ns - shift_ns
    if not late_ns:
        return found
    usual_ns = round(float(np.median(list(late_ns.values()))))
    return _meet(waits, record.noted, shift_ns + usual_ns, TIGHT_NS)


def _clock_shift(steps: WindowSteps, record: LiveRecord) -> int | None:
    """The window's clock minus the live one, from the begins of the steps that both have."""
    starts = record.step_start_ns or {}
    apart = [
        int(begin) - starts[int(number)]
        for number, begin in zip(steps.number, steps.start_ns, strict=True)
        if int(number) in starts
    ]
    if not apart or max(apart) - min(apart) > CLOCKS_APART_NS:
        return None
    return round(float(np.median(apart)))


def _meet(
    waits: TimedWaits, noted: Sequence[NotedWait], shift_ns: int, slack_ns: int
) -> list[NotedWait | None]:
    """Each wait with the noted one around it, else with an untimed one just before it."""
    by_thread: dict[str, tuple[_Row, _Row]] = {}
    for thread in set(waits.threads):
        mine = [each for each in noted if each.thread == thread]
        timed = [each for each in mine if each.blocked_ns >= 0]
        untimed = [each for each in mine if each.blocked_ns < 0]
        by_thread[thread] = _Row.of(timed, shift_ns), _Row.of(untimed, shift_ns)
    found: list[NotedWait | None] = []
    for i, (kind, thread) in enumerate(zip(waits.kinds, waits.threads, strict=True)):
        start_ns, end_ns = int(waits.start_ns[i]), int(waits.end_ns[i])
        timed, untimed = by_thread[thread]
        found.append(
            timed.around(start_ns, end_ns, slack_ns)
            or untimed.just_before(start_ns, kind, slack_ns)
        )
    return found


@dataclass(frozen=True, eq=False)
class _Row:
    """Noted waits of one thread in the order of their ends; no two are at once."""

    noted: Sequence[NotedWait]
    end_ns: Column
    """On the window's clock."""

    @classmethod
    def of(cls, noted: Sequence[NotedWait], shift_ns: int) -> _Row:
        ordered = sorted(noted, key=lambda each: each.end_ns)
        return cls(ordered, np.array([n.end_ns + shift_ns for n in ordered], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.noted)

    def around(self, start_ns: int, end_ns: int, slack_ns: int) -> NotedWait | None:
        """The one that holds the interval, of several the one whose end is nearest."""
        next_one = int(np.searchsorted(self.end_ns, end_ns))
        best: tuple[int, NotedWait] | None = None
        for place in range(max(next_one - NEIGHBOURS, 0), min(next_one + NEIGHBOURS, len(self))):
            noted, noted_end_ns = self.noted[place], int(self.end_ns[place])
            begins_ns = noted_end_ns - noted.blocked_ns
            if begins_ns <= start_ns + slack_ns and noted_end_ns >= end_ns - slack_ns:
                away_ns = abs(noted_end_ns - end_ns)
                if best is None or away_ns < best[0]:
                    best = away_ns, noted
        return None if best is None else best[1]

    def just_before(self, start_ns: int, kind: str, slack_ns: int) -> NotedWait | None:
        """The last one told of before ``start_ns``, if that is not long ago and kinds agree."""
        place = int(np.searchsorted(self.end_ns, start_ns + slack_ns, side="right")) - 1
        if place < 0 or start_ns - int(self.end_ns[place]) > SOON_NS:
            return None
        noted = self.noted[place]
        return noted if kinds_meet(kind, noted.kind) else None
