"""Calls a function until its time has settled: compilation, caches and clocks are behind it."""

from __future__ import annotations

from dataclasses import dataclass

from trainscope.bench.subject import Subject
from trainscope.bench.timers import Timer

__all__ = ["Warmed", "warm_up"]

LEAST_CALLS = 5
_WINDOW_NS = 10_000_000
_MOST_IN_A_WINDOW = 1000
_LIMIT_NS = 1_000_000_000
_WINDOWS_THAT_AGREE = 3
_AGREEMENT = 0.10


@dataclass(frozen=True)
class Warmed:
    """What the warm-up did, and how long a call takes at its end, by the host's clock."""

    calls: int
    spent_ns: int
    settled: bool
    call_ns: float


def warm_up(timer: Timer, subject: Subject) -> Warmed:
    """Run windows of 10 ms until three in a row agree within 10 %, for one second at most.

    At least five calls, whatever they take; the second does not count the first call, which may
    compile for minutes.
    """
    began = timer.now_ns()
    window_ns = [_window(timer, subject, 1)]
    calls, limit = 1, timer.now_ns() + _LIMIT_NS
    while True:
        count = min(max(round(_WINDOW_NS / max(window_ns[-1], 1.0)), 1), _MOST_IN_A_WINDOW)
        window_ns.append(_window(timer, subject, count))
        calls += count
        last = window_ns[-_WINDOWS_THAT_AGREE:]
        settled = len(last) == _WINDOWS_THAT_AGREE and max(last) <= min(last) * (1 + _AGREEMENT)
        if calls >= LEAST_CALLS and (settled or timer.now_ns() >= limit):
            return Warmed(calls, timer.now_ns() - began, settled, window_ns[-1])


def _window(timer: Timer, subject: Subject, calls: int) -> float:
    """Time of one call; a call that has to be prepared is timed by itself."""
    if subject.prepare is None:
        return timer.wall_ns(subject, calls)
    return sum(timer.wall_ns(subject, 1) for _ in range(calls)) / calls
