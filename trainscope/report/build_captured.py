"""The report of a trace that another tool wrote: a captured window, and no recording around it."""

from __future__ import annotations

from trainscope.analysis.captured_steps import captured_step_ns
from trainscope.analysis.window_ranges import time_window_ranges
from trainscope.analysis.window_steps import WindowSteps, find_steps
from trainscope.report.basis import Basis
from trainscope.report.build_phases import as_host_phases, as_window_phases
from trainscope.report.build_ranks import as_ranks
from trainscope.report.build_times import as_ranges, spread_ms
from trainscope.report.build_what_if import gain_findings
from trainscope.report.build_window_syncs import as_window_syncs
from trainscope.report.findings_gpu import gpu_findings
from trainscope.report.model import CaptureReport, IdleReport, Report, RunReport, WhatIf
from trainscope.report.model_gpu import GpuReport
from trainscope.report.model_times import StepsReport
from trainscope.report.verdict_gain import gain_sentences
from trainscope.report.wording import count_of
from trainscope.trace.window import Window

__all__ = ["build_captured"]


def build_captured(
    basis: Basis, gpu: GpuReport | None, idle: IdleReport | None, what_if: WhatIf | None
) -> Report:
    """What a bare trace tells; what only a recording knows is null."""
    trace, captured, step_ms = basis.trace, basis.captured, basis.step_ms
    found = trace.windows[0] if captured is None else captured.window
    steps = find_steps(found) if captured is None else captured.steps
    ranges, ranges_left_out = time_window_ranges(trace, found, steps)
    step_ns = captured_step_ns(found, steps)
    sentences = gain_sentences(what_if, idle, gpu, step_ms)
    info = trace.info
    return Report(
        run=RunReport(
            dir=str(trace.path),
            rank=trace.rank,
            world_size=max(info.world_size, 1 + len(trace.ranks)),
            device=info.device,
            torch=info.torch,
            trainscope=info.trainscope,
            dry_run=False,
            source=info.source,
        ),
        verdict=" ".join(sentences) or _without_gpu(found, steps),
        steps=StepsReport(
            count=len(steps),
            optimizer_steps=None,
            counted_by=steps.found_by or f"cannot tell: {steps.cannot_tell}",
            wall_ms=spread_ms(step_ns) if len(step_ns) else None,
        ),
        phases=as_host_phases(gpu.phases if gpu is not None else as_window_phases(found, steps)),
        ranges=as_ranges(ranges),
        ranges_left_out=ranges_left_out,
        syncs=[] if captured is None else as_window_syncs(captured, basis.replay, info.cwd),
        idle=idle,
        gpu=gpu,
        what_if=what_if,
        findings=[*gain_findings(basis.replay, info.cwd), *gpu_findings(gpu, idle, step_ms)],
        detector=None,
        overhead=None,
        capture=CaptureReport(
            windows=len(trace.windows),
            complete=gpu is not None and not gpu.incomplete,
            missing=list(found.problems if gpu is None else gpu.problems),
        ),
        ranks=as_ranks(trace),
        notes=[*trace.notes, *(found.problems if gpu is None else ())],
    )


def _without_gpu(window: Window, steps: WindowSteps) -> str:
    """The verdict where the trace does not tell what the GPU did in its steps."""
    if window.problems:
        return f"Where the GPU waits cannot be told: {window.problems[0]}."
    if not len(steps):
        return f"Where the GPU waits cannot be told: {steps.cannot_tell}."
    return (
        f"Where the GPU waits cannot be told from {count_of(len(steps), 'step')} without GPU work."
    )
