"""``compare``: two runs beside each other, with the noise within each taken into account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.captured_steps import captured_step_ns
from trainscope.analysis.change import Change, change_of_medians
from trainscope.analysis.examined import best_window
from trainscope.analysis.paired_keys import paired_keys
from trainscope.analysis.steps import time_phases, time_steps
from trainscope.analysis.sync_keys import KeyedSync, SyncKey, keyed_syncs
from trainscope.analysis.window_steps import find_steps
from trainscope.report.build import build
from trainscope.report.compare.likeness import (
    both_watched,
    notes,
    same_profiler,
    same_source,
    same_times,
)
from trainscope.report.compare.model import Comparison, Row, Side, SyncChange, TimeChange
from trainscope.report.compare.verdict import verdict
from trainscope.report.model import Report
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.trace import Trace

__all__ = ["compare"]

SYNC_CODES = "TS1"
OTHER_RATE = 1.2
"""From this factor on a sync of both is said to come more or less often."""
MOST_OPERATORS = 12
Ns = NDArray[np.int64]


def compare(before: Trace, after: Trace) -> Comparison:
    """What changed from ``before`` to ``after``; of several ranks the first is compared."""
    reports = build(before), build(after)
    step = _time("step", _steps_ns(before), _steps_ns(after))
    phases = list(_phases(before, after))
    syncs = _syncs(before, after)
    new = [each for each in syncs if not each.lines_before]
    gone = [each for each in syncs if not each.lines_after]
    findings = _findings(before, reports[0]), _findings(after, reports[1])
    if not same_source(before, after):
        findings = set[str](), set[str]()
    return Comparison(
        before=_side(before, reports[0]),
        after=_side(after, reports[1]),
        verdict=verdict(
            step,
            phases,
            new,
            gone,
            comparable=same_times(before, after),
            watched=both_watched(before, after),
        ),
        step=step,
        phases=phases,
        idle=list(_idle(*reports)),
        operators=_operators(*reports) if same_profiler(before, after) else [],
        syncs_new=new,
        syncs_gone=gone,
        syncs_changed=[each for each in syncs if _rate_changed(each)],
        findings_new=sorted(findings[1] - findings[0]),
        findings_gone=sorted(findings[0] - findings[1]),
        notes=list(notes(before, after, reports, step)),
    )


def _side(trace: Trace, report: Report) -> Side:
    return Side(
        path=str(trace.path),
        device=trace.info.device,
        steps=report.steps.count,
        dry_run=trace.info.dry_run,
        source=trace.info.source,
    )


def _steps_ns(trace: Trace) -> Ns:
    """Times of the measured steps in order; of a bare trace those of its window, profiled."""
    if trace.info.source == "run":
        return time_steps(trace).duration_ns
    window = best_window(trace.windows)
    if window is None:
        return np.zeros(0, dtype=np.int64)
    return captured_step_ns(window, find_steps(window)).astype(np.int64)


def _time(name: str, before_ns: Ns | None, after_ns: Ns | None) -> TimeChange:
    change: Change | None = None
    if before_ns is not None and after_ns is not None:
        change = change_of_medians(before_ns, after_ns)
    band = None
    if change is not None and change.low is not None and change.high is not None:
        band = (change.low, change.high)
    return TimeChange(
        name=name,
        before_ms=_median_ms(before_ns),
        after_ms=_median_ms(after_ns),
        ratio=None if change is None else change.ratio,
        band=band,
        told=None if change is None or band is None else change.is_told,
    )


def _median_ms(ns: Ns | None) -> float | None:
    return None if ns is None or not len(ns) else float(np.median(ns)) / NS_PER_MS


def _phases(before: Trace, after: Trace) -> Iterator[TimeChange]:
    """In the order of a step after the change, then those that are gone."""
    one, other = (
        {each.name: each.per_step_ns.astype(np.int64) for each in time_phases(t, time_steps(t))}
        for t in (before, after)
    )
    for name in (*other, *(name for name in one if name not in other)):
        yield _time(name, one.get(name), other.get(name))


def _idle(before: Report, after: Report) -> Iterator[TimeChange]:
    if before.idle is None or after.idle is None:
        return
    both: list[tuple[str, float, float]] = [
        ("idle", before.idle.per_step_ms, after.idle.per_step_ms),
        *((c, ms, after.idle.causes.get(c, 0.0)) for c, ms in before.idle.causes.items()),
    ]
    for name, one, other in both:
        if not one and not other:
            continue
        yield TimeChange(
            name=name, before_ms=one, after_ms=other, ratio=other / one if one > 0 else None
        )


def _operators(before: Report, after: Report) -> list[Row]:
    if before.gpu is None or after.gpu is None:
        return []
    one, other = (_operator_ms(report) for report in (before, after))
    rows = [Row(name=n, before_ms=one.get(n), after_ms=other.get(n)) for n in {**one, **other}]
    rows.sort(key=lambda row: (-abs((row.after_ms or 0) - (row.before_ms or 0)), row.name))
    return rows[:MOST_OPERATORS]


def _operator_ms(report: Report) -> Mapping[str, float]:
    assert report.gpu is not None
    steps = max(len(report.gpu.steps), 1)
    return {each.operator: each.ms_total / steps for each in report.gpu.operators}


def _findings(trace: Trace, report: Report) -> set[str]:
    """Those of syncs are named by line, and of a run the syncs are compared by their keys."""
    named = {f"{each.code} {each.title}" for each in report.findings}
    if trace.info.source != "run":
        return named
    return {each for each in named if not each.startswith(SYNC_CODES)}


def _syncs(before: Trace, after: Trace) -> list[SyncChange]:
    """All keys of both sides, those of most waits first; none where a side was not watched."""
    if not both_watched(before, after):
        return []
    old, new = keyed_syncs(before), keyed_syncs(after)
    places = paired_keys([each.key for each in new], [each.key for each in old])
    found = [
        _sync(each.key, old[places[each.key]] if each.key in places else None, each) for each in new
    ]
    kept = set(places.values())
    return found + [_sync(each.key, each, None) for i, each in enumerate(old) if i not in kept]


def _sync(key: SyncKey, before: KeyedSync | None, after: KeyedSync | None) -> SyncChange:
    return SyncChange(
        file=key.file,
        function=key.function,
        source=key.source,
        kind=key.kind,
        lines_before=[] if before is None else list(before.lines),
        lines_after=[] if after is None else list(after.lines),
        per_step_before=None if before is None else before.per_step,
        per_step_after=None if after is None else after.per_step,
        blocked_ms_before=_blocked_ms(before),
        blocked_ms_after=_blocked_ms(after),
    )


def _blocked_ms(sync: KeyedSync | None) -> float | None:
    if sync is None or sync.blocked_ns_per_step is None:
        return None
    return sync.blocked_ns_per_step / NS_PER_MS


def _rate_changed(sync: SyncChange) -> bool:
    before, after = sync.per_step_before, sync.per_step_after
    if not before or not after or not sync.lines_before or not sync.lines_after:
        return False
    return max(before, after) > OTHER_RATE * min(before, after)
