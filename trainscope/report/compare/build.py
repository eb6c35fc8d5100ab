"""``compare``: two runs beside each other, with the noise within each taken into account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.captured_steps import captured_step_ns
from trainscope.analysis.change import Change, change_of_medians
from trainscope.analysis.examined import best_window
from trainscope.analysis.steps import time_phases, time_steps
from trainscope.analysis.sync_keys import KeyedSync, SyncKey, keyed_syncs
from trainscope.analysis.window_steps import find_steps
from trainscope.report.build import build
from trainscope.report.compare.model import Comparison, Row, Side, SyncChange, TimeChange
from trainscope.report.compare.verdict import verdict
from trainscope.report.model import Report
from trainscope.trace.trace import Trace

__all__ = ["compare"]

NS_PER_MS = 1e6
OTHER_RATE = 1.2
"""From this factor on a sync of both is said to come more or less often."""
MOST_OPERATORS = 12
Ns = NDArray[np.int64]


def compare(before: Trace, after: Trace) -> Comparison:
    """What changed from ``before`` to ``after``; of several ranks the first is compared."""
    reports = build(before), build(after)
    step = _time("step", _steps_ns(before), _steps_ns(after))
    syncs = _syncs(before, after)
    new = [each for each in syncs if not each.lines_before]
    gone = [each for each in syncs if not each.lines_after]
    findings = [{f"{each.code} {each.title}" for each in report.findings} for report in reports]
    notes = list(_notes(before, after, reports, step))
    return Comparison(
        before=_side(before, reports[0]),
        after=_side(after, reports[1]),
        verdict=verdict(
            step,
            new,
            gone,
            comparable=not _unlike(before, after),
            watched=_is_watched(before) and _is_watched(after),
        ),
        step=step,
        phases=list(_phases(before, after)),
        idle=list(_idle(*reports)),
        operators=_operators(*reports),
        syncs_new=new,
        syncs_gone=gone,
        syncs_changed=[each for each in syncs if _rate_changed(each)],
        findings_new=sorted(findings[1] - findings[0]),
        findings_gone=sorted(findings[0] - findings[1]),
        notes=notes,
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


def _syncs(before: Trace, after: Trace) -> list[SyncChange]:
    """All keys of both sides, those of most waits first."""
    one, other = ({each.key: each for each in keyed_syncs(trace)} for trace in (before, after))
    return [_sync(key, one.get(key), other.get(key)) for key in {**other, **one}]


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


def _unlike(before: Trace, after: Trace) -> bool:
    """Whether their times stand for different things."""
    a, b = before.info, after.info
    return (
        a.dry_run or b.dry_run or a.device != b.device or (a.source == "run") != (b.source == "run")
    )


def _is_watched(trace: Trace) -> bool:
    return trace.detector is not None and trace.detector.mode != "off"


def _notes(
    before: Trace, after: Trace, reports: tuple[Report, Report], step: TimeChange
) -> Iterator[str]:
    a, b = before.info, after.info
    if a.dry_run or b.dry_run:
        yield "a dry run runs on the CPU: its times say nothing of a GPU's"
    elif a.device != b.device:
        yield f"the devices differ: {a.device or 'none known'} and {b.device or 'none known'}"
    if (a.source == "run") != (b.source == "run"):
        yield "one is a recorded run and one a profiler's trace, whose steps profiling slows"
    elif a.source != "run":
        yield "both are profiler's traces: their steps are slowed by profiling"
        yield "a trace shows no lines of syncs: syncs are compared between run directories only"
    for side, trace in (("before", before), ("after", after)):
        if trace.info.source == "run" and not _is_watched(trace):
            yield f"{side}: no detector looked, so that a sync is new or gone says nothing"
        if trace.ranks:
            yield f"{side}: of {1 + len(trace.ranks)} ranks rank {trace.rank} is compared"
    if step.band is not None:
        yield (
            "the intervals hold the noise within each run, not what differs between two runs of "
            "one program: run each twice to see that"
        )
    elif step.ratio is not None:
        yield "too few steps to tell a change from noise"
    if (reports[0].gpu is None) != (reports[1].gpu is None):
        yield "only one of the two has a captured window: idle time and kernels are not compared"
