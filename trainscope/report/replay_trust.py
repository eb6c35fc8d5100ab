"""How far a replay is to be trusted, in words."""

from __future__ import annotations

from trainscope.analysis.replay.judge import drift_in_words
from trainscope.report.model import Baseline, WhatIf
from trainscope.report.wording import duration

__all__ = ["trust_in_words"]


def trust_in_words(what_if: WhatIf) -> str:
    """How well it reproduces the recorded steps, and whether what the profiler cost is known.

    Empty where nothing was replayed; what ``cannot_tell`` says is not said again.
    """
    baseline = what_if.baseline
    if baseline is None:
        return ""
    drift = [] if what_if.drifted else [drift_in_words(baseline.drift)]
    return "; ".join([*drift, _calibration(baseline)])


def _calibration(baseline: Baseline) -> str:
    if not baseline.calibrated or baseline.measured_step_ms is None:
        return "not calibrated: the step's time with no profiler on is not known (--step-ms)"
    measured = duration(baseline.measured_step_ms)
    waits = baseline.measured_wait_ms
    by = "" if waits is None else f" and the {duration(waits)} that it waits"
    return f"calibrated by the step of {measured}{by} with no profiler on"
