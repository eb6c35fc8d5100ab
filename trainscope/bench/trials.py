"""Warm-up until the time has settled, then the trials: all functions in turn, in changing order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from trainscope.bench.subject import Subject, calling
from trainscope.bench.timers import Probe, Timer

__all__ = ["Effort", "Taken", "Warmed", "take", "warm_up"]

_WARM_LEAST_CALLS = 5
_WARM_WINDOW_NS = 10_000_000
_WARM_WINDOW_CALLS = 1000
_WARM_LIMIT_NS = 1_000_000_000
_WARM_WINDOWS = 3
_WARM_AGREEMENT = 0.10
_LEAST_TRIALS = 20
_LEAST_TRIALS_OF_FAST = 100
_FAST_NS = 100_000
_MOST_TRIALS = 1000
_WALL_TRIALS = 20


@dataclass(frozen=True)
class Effort:
    """How long to measure: ``trials`` of each function, or as many as ``seconds`` of it allow."""

    trials: int | None = None
    seconds: float = 0.5


@dataclass(frozen=True)
class Warmed:
    """What the warm-up did, and how long a call takes at its end, by the host's clock."""

    calls: int
    spent_ns: int
    settled: bool
    call_ns: float


@dataclass
class Taken:
    """What was measured of one function; trial i of every function is from round i."""

    subject: Subject
    warmed: Warmed
    probe: Probe
    calls: int
    times_ns: list[float] = field(default_factory=list)
    cpu_ns: list[float] = field(default_factory=list)
    wall_ns: list[float] = field(default_factory=list)


def take(subjects: Sequence[Subject], timer: Timer, effort: Effort) -> list[Taken]:
    """Warm every function up, find out what it does, then time all of them in turn.

    Raises:
        CallError: one of them raised; nothing was taken of the others either.
    """
    with timer.on_device():
        taken = [_begun(subject, timer) for subject in subjects]
        rounds = _rounds(taken, timer, effort)
        order, shuffled = list(taken), Random(0)
        for _ in range(rounds):
            shuffled.shuffle(order)
            for each in order:
                _take_trial(each, timer)
        if timer.kind == "cuda-events":
            for _ in range(min(rounds, _WALL_TRIALS)):
                shuffled.shuffle(order)
                for each in order:
                    _take_wall(each, timer)
    return taken


def _begun(subject: Subject, timer: Timer) -> Taken:
    with calling(subject.name):
        warmed = warm_up(timer, subject)
        probe = timer.probe(subject)
    return Taken(subject, warmed, probe, timer.calls_for(subject, warmed.call_ns))


def _take_trial(taken: Taken, timer: Timer) -> None:
    with calling(taken.subject.name):
        trial = timer.trial(taken.subject, taken.calls, taken.probe)
    taken.times_ns.append(trial.time_ns)
    taken.cpu_ns.append(trial.cpu_ns)


def _take_wall(taken: Taken, timer: Timer) -> None:
    with calling(taken.subject.name):
        taken.wall_ns.append(timer.wall_ns(taken.subject, taken.calls))


def _rounds(taken: Sequence[Taken], timer: Timer, effort: Effort) -> int:
    """At least 20, at least 100 where one is faster than 100 us: its noise is the larger part."""
    if effort.trials is not None:
        return effort.trials
    fast = min(each.warmed.call_ns for each in taken) < _FAST_NS
    least = _LEAST_TRIALS_OF_FAST if fast else _LEAST_TRIALS
    round_ns = sum(each.calls * each.warmed.call_ns + timer.overhead_ns for each in taken)
    fitting = round(effort.seconds * 1e9 * len(taken) / max(round_ns, 1.0))
    return min(max(fitting, least), _MOST_TRIALS)


def warm_up(timer: Timer, subject: Subject) -> Warmed:
    """Run windows of 10 ms until three in a row agree within 10 %, for one second at most.

    At least five calls, whatever they take; the second does not count the first call, which may
    compile for minutes.
    """
    began = timer.now_ns()
    window_ns = [_window(timer, subject, 1)]
    calls, limit = 1, timer.now_ns() + _WARM_LIMIT_NS
    while True:
        count = min(max(round(_WARM_WINDOW_NS / max(window_ns[-1], 1.0)), 1), _WARM_WINDOW_CALLS)
        window_ns.append(_window(timer, subject, count))
        calls += count
        last = window_ns[-_WARM_WINDOWS:]
        settled = len(last) == _WARM_WINDOWS and max(last) <= min(last) * (1 + _WARM_AGREEMENT)
        if calls >= _WARM_LEAST_CALLS and (settled or timer.now_ns() >= limit):
            return Warmed(calls, timer.now_ns() - began, settled, window_ns[-1])


def _window(timer: Timer, subject: Subject, calls: int) -> float:
    """Time of one call; a call that has to be prepared is timed by itself."""
    if subject.prepare is None:
        return timer.wall_ns(subject, calls)
    return sum(timer.wall_ns(subject, 1) for _ in range(calls)) / calls
