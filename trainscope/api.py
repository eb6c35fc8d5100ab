"""``load`` and ``analyze``: from what a run wrote to its report."""

from __future__ import annotations

from pathlib import Path

from trainscope.report.build import build
from trainscope.report.model import Report
from trainscope.trace.load import load
from trainscope.trace.ranges import Ranges
from trainscope.trace.run_info import RunInfo
from trainscope.trace.trace import Trace

__all__ = ["analyze", "load", "nothing_recorded"]


def analyze(trace: Trace) -> Report:
    """The report of a trace; several ranks give the report of the first and a summary of all."""
    return build(trace)


def nothing_recorded(why: str) -> Report:
    """A report of no run at all, whose verdict is ``why``."""
    info = RunInfo(launch_id="none", notes=[])
    empty = Trace(path=Path(), rank=0, info=info, ranges=Ranges.of([]), names=())
    return build(empty).model_copy(update={"verdict": why})
