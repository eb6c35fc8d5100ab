"""``load`` and ``analyze``: from what a run wrote to its report."""

from __future__ import annotations

from trainscope.report.build import build
from trainscope.report.model import Report
from trainscope.trace.load import load
from trainscope.trace.trace import Trace

__all__ = ["analyze", "load"]


def analyze(trace: Trace) -> Report:
    """The report of a trace; several ranks give the report of the first and a summary of all."""
    return build(trace)
