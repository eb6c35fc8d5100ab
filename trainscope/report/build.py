"""``build(trace)``: the report of a trace, unrounded."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from trainscope.analysis.ranges import time_ranges
from trainscope.analysis.steps import StepTimes, ranges_per_step, time_phases
from trainscope.analysis.syncs import unwanted_lines
from trainscope.report.basis import Basis, basis_of
from trainscope.report.build_captured import build_captured
from trainscope.report.build_gpu import as_gpu
from trainscope.report.build_ranks import as_ranks
from trainscope.report.build_syncs import as_syncs, race
from trainscope.report.build_times import as_phase, as_ranges, as_steps
from trainscope.report.build_what_if import as_what_if, gains_by_line
from trainscope.report.findings import find
from trainscope.report.findings_gpu import gpu_findings
from trainscope.report.model import (
    CaptureReport,
    DetectorReport,
    MetricsReport,
    Overhead,
    Report,
    RunReport,
    SinkReport,
)
from trainscope.report.verdict import verdict
from trainscope.report.verdict_gain import gain_sentences
from trainscope.trace.trace import Trace

__all__ = ["build", "build_on"]


def build(trace: Trace, step_ms: float | None = None) -> Report:
    """What the trace's rank did, with a summary of the other ranks where there are any.

    ``step_ms`` is the time of a step with no profiler on, for a trace that does not tell it.
    """
    return build_on(basis_of(trace, step_ms))


def build_on(basis: Basis) -> Report:
    """The report that rests on ``basis``.

    ``idle``, ``gpu`` and ``what_if`` need GPU times: they are null without a captured window.
    """
    trace, times, step_ms, replay = basis.trace, basis.times, basis.step_ms, basis.replay
    captured, info = basis.captured, trace.info
    gpu, idle = (None, None) if captured is None else as_gpu(captured, replay)
    what_if = None if replay is None else as_what_if(replay, info.cwd, info.counted_by)
    if info.source != "run":
        return build_captured(basis, gpu, idle, what_if)
    ranges, ranges_left_out = time_ranges(trace, times)
    lines = unwanted_lines(trace, times.count)
    steps = as_steps(trace, times)
    gains_ms = gains_by_line(replay)
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
        verdict=verdict(trace, steps, lines, gain_sentences(what_if, idle, gpu, step_ms)),
        steps=steps,
        phases=[as_phase(phase) for phase in time_phases(trace, times)],
        ranges=as_ranges(ranges),
        ranges_left_out=ranges_left_out,
        syncs=as_syncs(trace, lines, times.count, gains_ms),
        idle=idle,
        gpu=gpu,
        what_if=what_if,
        findings=[*find(trace, steps, lines, gains_ms), *gpu_findings(gpu, idle, step_ms)],
        detector=_detector(trace),
        overhead=_overhead(trace, times),
        capture=_capture(trace),
        metrics=_metrics(trace),
        ranks=as_ranks(trace),
        not_seen=list(trace.counts.not_seen),
        notes=[*info.notes, *trace.notes, *_slowed(trace, times)],
    )


def _detector(trace: Trace) -> DetectorReport | None:
    state = trace.detector
    if state is None:
        return None
    return DetectorReport(
        mode=state.mode,
        armed_steps=state.armed_steps,
        disarmed=list(state.unwatched),
        cannot_see=list(state.cannot_see),
        races=[race(site, trace.info.cwd) for site in state.races],
    )


def _overhead(trace: Trace, times: StepTimes) -> Overhead | None:
    counts = trace.counts
    if counts.range_cost_ns is None or not times.count:
        return None
    per_step_ns = counts.range_cost_ns * ranges_per_step(trace.ranges, times)
    per_step_ns += counts.per_step_cost_ns or 0.0
    # both are means: one log call that a busy thread held up is not set against a usual step
    mean_ns = float(np.mean(times.duration_ns)) if len(times.step) else 0.0
    return Overhead(per_step_us=per_step_ns / 1e3, share=per_step_ns / mean_ns if mean_ns else None)


def _capture(trace: Trace) -> CaptureReport | None:
    state = trace.captures
    if state is None:
        return None
    missing = [*state.missing, *([state.note] if state.note else [])]
    return CaptureReport(
        windows=len(state.windows),
        complete=state.complete,
        missing=missing,
        files=[f"rank{trace.rank}/{each.file}" for each in state.windows if each.file],
    )


def _slowed(trace: Trace, times: StepTimes) -> list[str]:
    """What a profiler that stayed after its window did to the steps that came."""
    windows = trace.captures.windows if trace.captures is not None else ()
    stayed = next((window for window in windows if window.stays), None)
    if stayed is None:
        return []
    if times.left_out_slowed:
        times_are = "their times are left out"
    elif (times.step > stayed.last_step).any():
        times_are = "their times are too long"
    else:
        return []
    return [
        f"the profiler stayed in the process after step {stayed.last_step}, and slows each launch "
        f"of the steps since ({stayed.stays}): {times_are}"
    ]


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
