"""``judge``: what a run does that its baseline does not allow; ``updated``: the next baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainscope.analysis.paired_keys import paired_keys
from trainscope.analysis.steps import time_steps
from trainscope.analysis.sync_keys import KeyedSync, SyncKey, keyed_syncs
from trainscope.errors import ConfigError
from trainscope.report.gate.baseline import Baseline, KnownSync
from trainscope.report.gate.judgement import Breach, Judgement
from trainscope.report.gate.over_budget import over_budget
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.trace import Trace

__all__ = ["judge", "updated"]

OFTEN_PER_STEP = 0.5
"""From here on a sync is one of most steps, and its rate is the same in short and long runs."""
LIKE_LENGTH = 2.0
"""Runs whose step counts differ by less than this factor give rates that can be compared."""
MORE_OFTEN = 1.5
"""A known sync may wait this much more often, and once more: not every run ends at one place."""


def judge(trace: Trace, baseline: Baseline) -> Judgement:
    """Hold a run against a baseline.

    Raises ConfigError where the run cannot tell: no recording, a detector that did not look, or no
    step where the baseline's run had some.
    """
    _require_recording(trace)
    if baseline.steps:
        _require_steps(trace, baseline.steps)
    syncs = keyed_syncs(trace)
    steps = time_steps(trace).count
    breaches: list[Breach] = []
    places = _known_places(syncs, baseline)
    used = set(places.values())
    for sync in syncs:
        place = places.get(sync.key)
        if place is None:
            breaches.append(_breach("new sync", sync, _how_often(sync)))
        else:
            breaches.extend(_worse(sync, baseline.syncs[place], baseline.steps))
    breaches.extend(over_budget(trace, syncs, baseline))
    return Judgement(
        passed=not breaches,
        breaches=breaches,
        known=len(places),
        gone=[each for i, each in enumerate(baseline.syncs) if i not in used],
        notes=list(_notes(trace, baseline, steps)),
    )


def updated(trace: Trace, old: Baseline | None) -> Baseline:
    """The baseline that this run passes; budgets and reasons of ``old`` stay.

    Raises ConfigError where the run cannot tell which syncs it has.
    """
    _require_recording(trace)
    keyed = keyed_syncs(trace)
    places = {} if old is None else _known_places(keyed, old)
    syncs = []
    for sync in keyed:
        place = places.get(sync.key)
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
        if not rank.is_watched:
            raise ConfigError(
                f"{trace.path}: rank {rank.rank} had no GPU to wait for, so that it has no new "
                "sync cannot be told: record it again as a dry run, by `trainscope run` or with "
                "Scope(dry_run=True)"
            )
    if trace.missing_ranks:
        ranks = ", ".join(map(str, trace.missing_ranks))
        raise ConfigError(f"{trace.path}: nothing was recorded of rank {ranks}: record it again")


def _known_places(syncs: Sequence[KeyedSync], baseline: Baseline) -> dict[SyncKey, int]:
    known = [SyncKey(each.file, each.function, each.source, each.kind) for each in baseline.syncs]
    return paired_keys([sync.key for sync in syncs], known)


def _require_steps(trace: Trace, steps: int) -> None:
    """A run that ended before its first step has few syncs, and would pass anything."""
    for rank in (trace, *trace.ranks):
        if not time_steps(rank).count:
            raise ConfigError(
                f"{trace.path}: rank {rank.rank} recorded no step, and the baseline's run had "
                f"{steps}: did it end early? Record it again"
            )


def _worse(sync: KeyedSync, known: KnownSync, steps: int) -> Iterator[Breach]:
    if len(sync.lines) > known.lines:
        words = f"the baseline has {known.lines} such line(s), this run {len(sync.lines)}"
        yield _breach("one more line", sync, f"{words}; {_how_often(sync)}")
        return
    if sync.per_step is None or known.per_step is None or not steps:
        return
    if not _alike(steps, sync.steps) and sync.per_step < OFTEN_PER_STEP:
        return
    # one wait more than so many, rounded up, is allowed; an absurd rate may overflow to infinity
    if sync.count - 2 >= MORE_OFTEN * known.per_step * sync.steps:
        words = f"{sync.per_step:.3g} a step, {known.per_step:.3g} in the baseline"
        yield _breach("more often", sync, words)


def _alike(steps: int, others: int) -> bool:
    return max(steps, others) < LIKE_LENGTH * min(steps, others)


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


def _notes(trace: Trace, baseline: Baseline, steps: int) -> Iterator[str]:
    if trace.info.dry_run != baseline.dry_run:
        one, other = "a run on a GPU", "a dry run"
        if baseline.dry_run:
            one, other = other, one
        yield f"the baseline comes from {one} and this is {other}: they see other kinds of waits"
    if not steps:
        yield "this run has no steps: all its syncs but those of evaluation were looked at"
    elif trace.info.steps_in_doubt:
        yield (
            "it is in doubt what a step of this run is: whether its syncs come more often cannot "
            f"be told ({trace.info.counted_by})"
        )
    for rank in (trace, *trace.ranks):
        state = rank.detector
        for stretch in state.unwatched if state is not None else ():
            yield f"rank {rank.rank} was not watched everywhere: {stretch}"
    if steps and baseline.steps and not _alike(steps, baseline.steps):
        yield (
            f"the baseline's run had {baseline.steps} steps, this one {steps}: of syncs that not "
            "every other step has, it cannot be told whether they come more often"
        )
