"""``judge``: what a run does that its baseline does not allow; ``updated``: the next baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import Field

from trainscope.analysis.ranks import compare_ranks
from trainscope.analysis.steps import time_steps
from trainscope.analysis.sync_keys import KeyedSync, keyed_syncs, same_file
from trainscope.errors import ConfigError
from trainscope.report.gate.baseline import Baseline, KnownSync
from trainscope.report.model import Report
from trainscope.report.model_times import Part
from trainscope.trace.trace import Trace

__all__ = ["Breach", "Judgement", "judge", "updated"]

NS_PER_MS = 1e6
OFTEN_PER_STEP = 0.5
"""From here on a sync is one of most steps, and its rate is the same in short and long runs."""
LIKE_LENGTH = 2.0
"""Runs whose step counts differ by less than this factor give rates that can be compared."""
MORE_OFTEN = 1.5
"""A known sync may wait this much more often, and once more: not every run ends at one place."""


class Breach(Part):
    """One thing that the baseline does not allow."""

    what: str
    """``new sync``, ``one more line``, ``more often`` or ``budget``."""
    where: str
    """``train.py:41 in step``, or the budget's name."""
    source: str | None = None
    kind: str | None = None
    code: str | None = None
    words: str
    advice: str | None = None


class Judgement(Part):
    """A run held against its baseline."""

    passed: bool
    breaches: list[Breach]
    known: int
    """Syncs of the run that the baseline has."""
    gone: list[KnownSync]
    """Syncs of the baseline that the run has not."""
    notes: list[str] = Field(default_factory=list)
    """What the judgement could not take into account."""


def judge(trace: Trace, report: Report, baseline: Baseline) -> Judgement:
    """Hold a run, whose report is ``report``, against a baseline.

    Raises ConfigError where the run cannot tell: no recording, or a detector that did not look.
    """
    _require_recording(trace)
    syncs = keyed_syncs(trace)
    steps = time_steps(trace).count
    breaches: list[Breach] = []
    used: set[int] = set()
    for sync in syncs:
        place = _known_place(sync, baseline)
        if place is None:
            breaches.append(_breach("new sync", sync, _how_often(sync)))
        else:
            used.add(place)
            breaches.extend(_worse(sync, baseline.syncs[place], baseline.steps))
    known = len(syncs) - sum(each.what == "new sync" for each in breaches)
    breaches.extend(_over_budget(trace, report, syncs, baseline))
    return Judgement(
        passed=not breaches,
        breaches=breaches,
        known=known,
        gone=[each for i, each in enumerate(baseline.syncs) if i not in used],
        notes=list(_notes(trace, baseline, steps)),
    )


def updated(trace: Trace, old: Baseline | None) -> Baseline:
    """The baseline that this run passes; budgets and reasons of ``old`` stay.

    Raises ConfigError where the run cannot tell which syncs it has.
    """
    _require_recording(trace)
    syncs = []
    for sync in keyed_syncs(trace):
        place = None if old is None else _known_place(sync, old)
        syncs.append(
            KnownSync(
                file=sync.key.file,
                function=sync.key.function,
                source=sync.key.source,
                kind=sync.key.kind,
                lines=len(sync.lines),
                per_step=None if sync.per_step is None else round(sync.per_step, 6),
                reason=None if old is None or place is None else old.syncs[place].reason,
            )
        )
    return Baseline(
        dry_run=trace.info.dry_run,
        steps=time_steps(trace).count,
        budgets=Baseline().budgets if old is None else old.budgets,
        syncs=sorted(syncs, key=lambda each: (each.file, each.function, each.source, each.kind)),
    )


def _require_recording(trace: Trace) -> None:
    if trace.info.source != "run":
        raise ConfigError(
            f"{trace.path} is a trace, which does not show every line that waits: check needs a "
            "run directory, made by a Scope or by `trainscope run`"
        )
    for rank in (trace, *trace.ranks):
        if rank.detector is None or rank.detector.mode == "off":
            raise ConfigError(
                f"{trace.path}: rank {rank.rank} has no record of a sync detector, so that it has "
                "no new sync cannot be told: record it again, with the detector on"
            )
    if trace.missing_ranks:
        ranks = ", ".join(map(str, trace.missing_ranks))
        raise ConfigError(f"{trace.path}: nothing was recorded of rank {ranks}: record it again")


def _known_place(sync: KeyedSync, baseline: Baseline) -> int | None:
    """Where the baseline has this key: the same path first, then one seen from elsewhere."""
    places = [
        (each.file != sync.key.file, i)
        for i, each in enumerate(baseline.syncs)
        if (each.function, each.source, each.kind)
        == (sync.key.function, sync.key.source, sync.key.kind)
        and same_file(each.file, sync.key.file)
    ]
    return min(places)[1] if places else None


def _worse(sync: KeyedSync, known: KnownSync, steps: int) -> Iterator[Breach]:
    if len(sync.lines) > known.lines:
        words = f"the baseline has {known.lines} such line(s), this run {len(sync.lines)}"
        yield _breach("one more line", sync, f"{words}; {_how_often(sync)}")
        return
    if sync.per_step is None or known.per_step is None or not steps:
        return
    like = max(steps, sync.steps) < LIKE_LENGTH * min(steps, sync.steps)
    if not like and sync.per_step < OFTEN_PER_STEP:
        return
    if sync.count > math.ceil(MORE_OFTEN * known.per_step * sync.steps) + 1:
        words = f"{sync.per_step:.3g} a step, {known.per_step:.3g} in the baseline"
        yield _breach("more often", sync, words)


def _breach(what: str, sync: KeyedSync, words: str) -> Breach:
    lines = ", ".join(map(str, sync.lines))
    return Breach(
        what=what,
        where=f"{sync.key.file}:{lines} in {sync.key.function}",
        source=sync.key.source or None,
        kind=sync.key.kind,
        code=sync.code,
        words=words,
        advice=sync.advice,
    )


def _how_often(sync: KeyedSync) -> str:
    if sync.per_step is None:
        return f"{sync.count} times"
    often = f"{sync.per_step:.3g} a step"
    if sync.blocked_ns_per_step is None:
        return often
    return f"{often}, blocked {sync.blocked_ns_per_step / NS_PER_MS:.3g} ms a step"


def _over_budget(
    trace: Trace, report: Report, syncs: tuple[KeyedSync, ...], baseline: Baseline
) -> Iterator[Breach]:
    budgets = baseline.budgets
    measured = (
        ("step_ms", budgets.step_ms, _step_ms(trace)),
        ("syncs_per_step", budgets.syncs_per_step, _sum_or_none(s.per_step for s in syncs)),
        (
            "blocked_ms_per_step",
            budgets.blocked_ms_per_step,
            _sum_or_none(
                None if s.blocked_ns_per_step is None else s.blocked_ns_per_step / NS_PER_MS
                for s in syncs
            ),
        ),
        (
            "gpu_idle_ms_per_step",
            budgets.gpu_idle_ms_per_step,
            None if report.idle is None else report.idle.per_step_ms,
        ),
    )
    for name, limit, value in measured:
        if limit is None:
            continue
        if value is None:
            words = f"at most {limit:g} is allowed, and this run cannot tell"
            yield Breach(what="budget", where=name, words=words)
        elif value > limit:
            yield Breach(what="budget", where=name, words=f"{value:.4g}, at most {limit:g} allowed")


def _step_ms(trace: Trace) -> float | None:
    if trace.info.dry_run:
        return None
    medians = [rank.step_ns_median for rank in compare_ranks(trace).per_rank]
    known = [ns for ns in medians if ns is not None]
    return max(known) / NS_PER_MS if known else None


def _sum_or_none(values: Iterator[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def _notes(trace: Trace, baseline: Baseline, steps: int) -> Iterator[str]:
    if trace.info.dry_run != baseline.dry_run:
        one, other = (
            ("a dry run", "a run on a GPU")
            if baseline.dry_run
            else (*("a run on a GPU", "a dry run"),)
        )
        yield f"the baseline comes from {one} and this is {other}: they see other kinds of waits"
    if not steps:
        yield "this run has no steps: all its syncs but those of evaluation were looked at"
    for rank in (trace, *trace.ranks):
        state = rank.detector
        for stretch in state.disarmed if state is not None else ():
            yield f"rank {rank.rank} was not watched everywhere: {stretch}"
    if (
        steps
        and baseline.steps
        and not (max(steps, baseline.steps) < LIKE_LENGTH * min(steps, baseline.steps))
    ):
        yield (
            f"the baseline's run had {baseline.steps} steps, this one {steps}: of syncs that not "
            "every other step has, it cannot be told whether they come more often"
        )
