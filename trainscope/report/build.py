"""``build(trace)``: the report of a trace, unrounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.ranks import compare_ranks
from trainscope.analysis.steps import (
    PhaseTimes,
    StepTimes,
    ranges_per_step,
    time_phases,
    time_steps,
)
from trainscope.analysis.syncs import per_step, unwanted_lines
from trainscope.report.findings import find
from trainscope.report.model import (
    CaptureReport,
    DetectorReport,
    LeftOut,
    MetricsReport,
    Overhead,
    Phase,
    RanksReport,
    RankSteps,
    RankSync,
    Report,
    RunReport,
    SinkReport,
    Spread,
    StepsReport,
    Sync,
)
from trainscope.report.verdict import verdict
from trainscope.report.wording import relative_path
from trainscope.trace.syncs import SyncSite
from trainscope.trace.trace import Trace

__all__ = ["build"]

NS_PER_MS = 1e6


def build(trace: Trace) -> Report:
    """What the trace's rank did, with a summary of the other ranks where there are any.

    ``idle`` and ``what_if`` are null: they need GPU times, which a live recording has none of.
    """
    times = time_steps(trace)
    phases = time_phases(trace, times)
    lines = unwanted_lines(trace, times.count)
    info = trace.info
    steps = _steps(trace, times)
    return Report(
        run=RunReport(
            dir=str(trace.path),
            rank=trace.rank,
            world_size=info.world_size,
            device=info.device,
            torch=info.torch,
            trainscope=info.trainscope,
            dry_run=info.dry_run,
            source=info.source,
        ),
        verdict=verdict(trace, steps, lines),
        steps=steps,
        phases=[_phase(phase, times) for phase in phases],
        syncs=_syncs(trace.syncs, times.count, info.cwd),
        idle=None,
        what_if=None,
        findings=find(trace, steps, lines),
        detector=_detector(trace),
        overhead=_overhead(trace, times),
        capture=_capture(trace),
        metrics=_metrics(trace),
        ranks=_ranks(trace),
        not_seen=list(trace.counts.not_seen),
        notes=[*info.notes, *trace.notes],
    )


def _spread(ns: NDArray[np.int64] | NDArray[np.float64]) -> Spread:
    p10, median, p90 = (float(np.percentile(ns, q)) / NS_PER_MS for q in (10, 50, 90))
    return Spread(median=median, p10=p10, p90=p90)


def _steps(trace: Trace, times: StepTimes) -> StepsReport:
    return StepsReport(
        count=times.count,
        optimizer_steps=trace.counts.optimizer_steps,
        counted_by=trace.info.counted_by,
        wall_ms=_spread(times.duration_ns) if len(times.step) else None,
        left_out=LeftOut(warm_up=times.left_out_warm_up, captured=times.left_out_captured),
    )


def _phase(phase: PhaseTimes, times: StepTimes) -> Phase:
    return Phase(
        name=phase.name,
        per_step_ms=_spread(phase.per_step_ns),
        where="host",
        steps=len(phase.per_step_ns),
        share=phase.total_ns / max(int(times.duration_ns.sum()), 1),
    )


def _syncs(sites: Sequence[SyncSite], steps: int, cwd: str | None) -> list[Sync]:
    """Longest total wait first, then most frequent."""
    ordered = sorted(
        sites, key=lambda site: (-site.blocked_ns_total, -site.count, site.file, site.line)
    )
    return [_sync(site, steps, cwd) for site in ordered]


def _sync(site: SyncSite, steps: int, cwd: str | None) -> Sync:
    return Sync(
        code=site.code,
        kind=site.kind,
        explicit=site.explicit,
        allowed=site.allowed,
        file=relative_path(site.file, cwd),
        line=site.line,
        function=site.function,
        source=site.source,
        caller=None if site.caller is None else relative_path(site.caller, cwd),
        via=site.via,
        phase=site.phase,
        thread=site.thread,
        during=site.during,
        count=site.count,
        per_step=per_step(site, steps),
        timed=site.timed,
        blocked_ms_total=site.blocked_ns_total / NS_PER_MS if site.timed else None,
        blocked_ms_median=(
            None if site.blocked_ns_median is None else site.blocked_ns_median / NS_PER_MS
        ),
        gain_ms_per_step=None,
        advice=site.advice,
    )


def _detector(trace: Trace) -> DetectorReport | None:
    state = trace.detector
    if state is None:
        return None
    return DetectorReport(
        mode=state.mode,
        armed_steps=state.armed_steps,
        disarmed=list(state.disarmed),
        cannot_see=list(state.cannot_see),
        races=_syncs(state.races, 0, trace.info.cwd),
    )


def _overhead(trace: Trace, times: StepTimes) -> Overhead | None:
    counts = trace.counts
    if counts.range_cost_ns is None or not times.count:
        return None
    per_step_ns = counts.range_cost_ns * ranges_per_step(trace.ranges, times)
    per_step_ns += counts.per_step_cost_ns or 0.0
    median_ns = float(np.median(times.duration_ns))
    return Overhead(
        per_step_us=per_step_ns / 1e3, share=per_step_ns / median_ns if median_ns else None
    )


def _capture(trace: Trace) -> CaptureReport | None:
    state = trace.captures
    if state is None:
        return None
    missing = [*state.missing, *([state.note] if state.note else [])]
    return CaptureReport(windows=len(state.windows), complete=state.complete, missing=missing)


def _metrics(trace: Trace) -> MetricsReport | None:
    state = trace.metrics
    if state is None:
        return None
    return MetricsReport(
        logged=state.logged,
        written=state.written,
        dropped=state.dropped,
        nonfinite=[f"{name} = {value} at step {step}" for name, step, value in state.nonfinite],
        nonfinite_count=state.nonfinite_count,
        sinks=[SinkReport(**asdict(sink)) for sink in state.sinks],
    )


def _ranks(trace: Trace) -> RanksReport | None:
    if not trace.ranks and not trace.missing_ranks:
        return None
    ranks = compare_ranks(trace)
    return RanksReport(
        missing=list(ranks.missing),
        per_rank=[
            RankSteps(
                rank=rank.rank,
                steps=rank.steps,
                step_ms_median=None if rank.step_ns_median is None else rank.step_ns_median / 1e6,
            )
            for rank in ranks.per_rank
        ],
        slowest=ranks.slowest,
        slowest_over_median=ranks.slowest_over_median,
        syncs=[
            RankSync(
                site=f"{relative_path(line.file, trace.info.cwd)}:{line.line}",
                kind=line.kind,
                ranks=list(line.ranks),
                count=line.count,
                blocked_ms_total=(
                    None if line.blocked_ns_total is None else line.blocked_ns_total / NS_PER_MS
                ),
            )
            for line in ranks.lines
        ],
    )
