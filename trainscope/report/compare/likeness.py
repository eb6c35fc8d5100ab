"""How far two runs can be compared, and what stands in the way, in words."""

from __future__ import annotations

from collections.abc import Iterator

from trainscope.analysis.examined import best_window
from trainscope.report.compare.model import TimeChange
from trainscope.report.model import Report
from trainscope.trace.trace import Trace

__all__ = ["both_watched", "notes", "same_profiler", "same_source", "same_times"]


def same_source(before: Trace, after: Trace) -> bool:
    """Whether both are runs, or traces of one profiler: each names findings in its own way."""
    return before.info.source == after.info.source


def same_times(before: Trace, after: Trace) -> bool:
    """Whether the times of their steps stand for the same thing."""
    a, b = before.info, after.info
    alike = a.device == b.device and (a.source == "run") == (b.source == "run")
    return alike and not a.dry_run and not b.dry_run


def same_profiler(before: Trace, after: Trace) -> bool:
    """Whether their windows name the work on the GPU alike; True where one has no window."""
    windows = best_window(before.windows), best_window(after.windows)
    return len({window.source for window in windows if window is not None}) < 2


def both_watched(before: Trace, after: Trace) -> bool:
    """Whether a detector looked on both sides, so that a sync that is missing was not there."""
    return before.is_watched and after.is_watched


def notes(
    before: Trace, after: Trace, reports: tuple[Report, Report], step: TimeChange
) -> Iterator[str]:
    """What stands in the way of comparing the two, and what the intervals do not hold."""
    a, b = before.info, after.info
    if a.dry_run or b.dry_run:
        yield "a dry run runs on the CPU: its times say nothing of a GPU's"
    elif a.device != b.device:
        yield f"the devices differ: {a.device or 'none known'} and {b.device or 'none known'}"
    if (a.source == "run") != (b.source == "run"):
        yield "one is a recorded run and one a profiler's trace, whose steps profiling slows"
        yield "a trace shows no lines of syncs: neither syncs nor findings are compared"
    elif a.source != "run":
        yield "both are profiler's traces: their steps are slowed by profiling"
        yield "a trace shows no lines of syncs: syncs are compared between run directories only"
    if not same_profiler(before, after):
        yield "two profilers name GPU work in two ways: kernels and findings are not compared"
    for side, trace in (("before", before), ("after", after)):
        if trace.info.source == "run" and not trace.is_watched:
            why = "no detector looked" if _had_none(trace) else "no GPU there, and no dry run"
            yield f"{side}: {why}, so that a sync is new or gone cannot be told"
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


def _had_none(trace: Trace) -> bool:
    return trace.detector is None or trace.detector.mode == "off"
