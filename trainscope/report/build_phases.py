"""The phases of a captured window, for a report."""

from __future__ import annotations

from trainscope.analysis.window_phases import window_phases
from trainscope.analysis.window_steps import WindowSteps
from trainscope.report.build_times import spread_ms
from trainscope.report.model_gpu import PhaseReport
from trainscope.report.model_times import Phase
from trainscope.trace.window import Window

__all__ = ["MOST_PHASES", "as_host_phases", "as_window_phases"]

MOST_PHASES = 40
"""A loop that numbers its ranges has a name for each step."""


def as_window_phases(window: Window, steps: WindowSteps) -> list[PhaseReport]:
    """The phases with most CPU time, in the order of a step."""
    phases = window_phases(window, steps)
    most = sorted(phases, key=lambda phase: -int(phase.cpu_ns.sum()))[:MOST_PHASES]
    return [
        PhaseReport(
            name=phase.name,
            cpu_ms_per_step=spread_ms(phase.cpu_ns),
            gpu_ms_per_step=spread_ms(phase.gpu_ns),
            steps=len(phase.cpu_ns),
            share=phase.share,
        )
        for phase in phases
        if phase in most
    ]


def as_host_phases(phases: list[PhaseReport]) -> list[Phase]:
    """The same as the phases of a report that has no others."""
    return [
        Phase(
            name=phase.name,
            per_step_ms=phase.cpu_ms_per_step,
            where="host",
            steps=phase.steps,
            share=phase.share,
        )
        for phase in phases
    ]
