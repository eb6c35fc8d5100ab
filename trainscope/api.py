"""``load``, ``analyze``, ``page`` and ``compare``: from what runs wrote to their reports."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from trainscope.errors import ConfigError
from trainscope.report.basis import basis_of
from trainscope.report.build import build, build_on
from trainscope.report.compare.build import compare
from trainscope.report.model import Report
from trainscope.trace.load import load
from trainscope.trace.ranges import Ranges
from trainscope.trace.run_info import RunInfo
from trainscope.trace.trace import Trace

__all__ = ["analyze", "compare", "load", "nothing_recorded", "page"]

_LEAST_STEP_MS, _LONGEST_STEP_MS = 0.001, 86_400_000
"""A microsecond and a day."""


def analyze(trace: Trace, *, step_ms: float | None = None, keep: Collection[str] = ()) -> Report:
    """The report of a trace; several ranks give the report of the first and a summary of all.

    ``step_ms`` is the time of a step in ms with no profiler on, which a captured window alone does
    not tell: the replay of the window is calibrated by it. A recorded run knows it itself. ``keep``
    names places that wait and that the program needs, as the report writes them or as
    ``file:line``: the replay takes all others out. Raises ConfigError for a ``step_ms`` below
    a microsecond or above a day, for a place that is not in the window, and for what is no trace.
    """
    if not isinstance(trace, Trace):
        raise ConfigError(
            f"trace={trace!r} is no Trace; trainscope.load(path) reads one of a run or trace file"
        )
    return build_on(basis_of(trace, _checked(step_ms), keep))


def page(trace: Trace, *, step_ms: float | None = None, keep: Collection[str] = ()) -> str:
    """The report of a trace as one HTML page that works offline; arguments as of ``analyze``."""
    from trainscope.report.page.render import render

    basis = basis_of(trace, _checked(step_ms), keep)
    return render(build_on(basis), basis)


def _checked(step_ms: float | None) -> float | None:
    if step_ms is not None and not _LEAST_STEP_MS <= step_ms <= _LONGEST_STEP_MS:
        raise ConfigError(
            f"step_ms={step_ms!r} is no time of a step: give milliseconds, as measured with no "
            f"profiler on, from {_LEAST_STEP_MS} to {_LONGEST_STEP_MS:,}"
        )
    return step_ms


def nothing_recorded(why: str) -> Report:
    """A report of no run at all, whose verdict is ``why``."""
    info = RunInfo(launch_id="none", notes=[])
    empty = Trace(path=Path(), rank=0, info=info, ranges=Ranges.of([]), names=())
    made = build(empty)
    nowhere = made.run.model_copy(update={"dir": ""})
    return made.model_copy(update={"verdict": why, "run": nowhere})
