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
"""How much the distance of the two clocks may vary over most steps: more, and they do not tie. A
step that was found to have begun earlier is moved back on the live clock alone."""
TIGHT_NS = 30_000
"""How far a wait may stand outside what the detector timed."""
LOOSE_NS = 100_000
"""And where nothing else is there that it could be."""
_SKEW_NS = 240_000
_SKEW_STEP_NS = 20_000
_SAMPLE = 300
"""Waits by which the skew is found."""
_ENOUGH = 3
"""Of which so many have to agree: a single one may be another line's."""
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
    step_end_ns: Mapping[int, int] | None = None


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
    shift_ns += _skew(waits, record.noted, shift_ns)
    found = _meet(waits, record.noted, shift_ns, LOOSE_NS)
    near = _meet(waits, record.noted, shift_ns, TIGHT_NS)
    taken = {id(noted) for noted in near}
    return [
        _still_open(kind, noted, taken) if placed is None else placed
        for kind, placed, noted in zip(waits.kinds, near, found, strict=True)
    ]


def _still_open(kind: str, noted: NotedWait | None, taken: set[int]) -> NotedWait | None:
    """What was noted about when a wait of this kind was, if it is no other's: clocks drift."""
    if noted is None or id(noted) in taken or not kinds_meet(kind, noted.kind):
        return None
    return noted


def _clock_shift(steps: WindowSteps, record: LiveRecord) -> int | None:
    """The window's clock minus the live one, by what most steps that both have agree on."""
    starts = _agreed(steps.number, steps.start_ns, record.step_start_ns or {})
    if starts is not None:
        return starts
    return _agreed(steps.number, steps.end_ns, record.step_end_ns or {})


def _agreed(number: Column, window_ns: Column, live_ns: Mapping[int, int]) -> int | None:
    """What most of the steps say; None where no more than half of them agree."""
    both = zip(number.tolist(), window_ns.tolist(), strict=True)
    apart = [ns - live_ns[step] for step, ns in both if step in live_ns]
    if not apart:
        return None
    usual = float(np.median(apart))
    near = [ns for ns in apart if abs(ns - usual) <= CLOCKS_APART_NS / 2]
    return round(float(np.median(near))) if 2 * len(near) > len(apart) else None


def _skew(waits: TimedWaits, noted: Sequence[NotedWait], shift_ns: int) -> int:
    """How far the clock of the waits is off the one of the steps, where most waits are noted.

    CUDA's calls and the CPU's ranges are stamped by two clocks, which the profiler ties loosely.
    """
    few = TimedWaits(
        waits.start_ns[:_SAMPLE],
        waits.end_ns[:_SAMPLE],
        waits.kinds[:_SAMPLE],
        waits.threads[:_SAMPLE],
    )
    timed = [each for each in noted if each.blocked_ns >= 0]
    placed_at: dict[int, int] = {}
    for off_ns in sorted(range(-_SKEW_NS, _SKEW_NS + 1, _SKEW_STEP_NS), key=abs):
        found = _meet(few, timed, shift_ns + off_ns, TIGHT_NS)
        placed_at[off_ns] = sum(each is not None for each in found)
    best_ns = max(placed_at, key=lambda off_ns: placed_at[off_ns])  # of equal ones the least
    return best_ns if placed_at[best_ns] >= _ENOUGH else 0


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
