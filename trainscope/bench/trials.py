"""The trials: how many, and all functions in turn, in an order that changes every round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from trainscope.bench.subject import Subject
from trainscope.bench.timers import Probe, Timer
from trainscope.bench.warm_up import Warmed, warm_up

__all__ = ["Effort", "Taken", "take"]

LEAST_TRIALS = 20
LEAST_TRIALS_OF_FAST = 100
FAST_NS = 100_000
_MOST_TRIALS = 1000
_WALL_TRIALS = 20


@dataclass(frozen=True)
class Effort:
    """How long to measure: ``trials`` of each function, or as many as ``seconds`` of it allow."""

    trials: int | None = None
    seconds: float = 0.5


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
    """Warm every function up, find out what it does, then time all of them in turn."""
    with timer.on_device():
        taken = [_begun(subject, timer) for subject in subjects]
        rounds = _rounds(taken, timer, effort)
        order, shuffled = list(taken), Random(0)
        for _ in range(rounds):
            shuffled.shuffle(order)
            for each in order:
                trial = timer.trial(each.subject, each.calls, each.probe)
                each.times_ns.append(trial.time_ns)
                each.cpu_ns.append(trial.cpu_ns)
        if timer.kind == "cuda-events":
            for _ in range(min(rounds, _WALL_TRIALS)):
                shuffled.shuffle(order)
                for each in order:
                    each.wall_ns.append(timer.wall_ns(each.subject, each.calls))
    return taken


def _begun(subject: Subject, timer: Timer) -> Taken:
    warmed = warm_up(timer, subject)
    return Taken(subject, warmed, timer.probe(subject), timer.calls_for(subject, warmed.call_ns))


def _rounds(taken: Sequence[Taken], timer: Timer, effort: Effort) -> int:
    """At least 20, at least 100 where one is faster than 100 us: its noise is the larger part."""
    if effort.trials is not None:
        return effort.trials
    fast = min(each.warmed.call_ns for each in taken) < FAST_NS
    least = LEAST_TRIALS_OF_FAST if fast else LEAST_TRIALS
    round_ns = sum(each.calls * each.warmed.call_ns + timer.overhead_ns for each in taken)
    fitting = round(effort.seconds * 1e9 * len(taken) / max(round_ns, 1.0))
    return min(max(fitting, least), _MOST_TRIALS)
