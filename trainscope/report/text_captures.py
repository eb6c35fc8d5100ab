"""The captured windows of a text report."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from trainscope.report.model import Report
from trainscope.report.text_parts import hanging, heading, plain
from trainscope.report.wording import count_of

__all__ = ["captures_section"]

MAX_FILES = 5
_ABOUT_CAPTURES = ("TS504", "TS505", "TS506")
_OPEN_IN = "open it in ui.perfetto.dev or chrome://tracing"


def captures_section(report: Report) -> Iterator[RenderableType]:
    """What a run captured, where it lies, what to open it in, and what it lacks."""
    capture = report.capture
    if capture is None or report.run.source != "run":
        return  # a trace that is itself the window stands at the top
    yield heading("Captured windows")
    state = "complete" if capture.complete and capture.windows else "not complete"
    yield hanging("", f"{count_of(capture.windows, 'window')}, {state}")
    for place, file in enumerate(capture.files[:MAX_FILES]):
        yield hanging("", plain(file) + ("" if place else f": {_OPEN_IN}"))
    more = len(capture.files) - MAX_FILES
    if more > 0:
        yield hanging("", f"and {more:,} more beside it")
    for missing in capture.missing:
        yield hanging("- ", plain(missing))
    for finding in report.findings:
        if finding.code in _ABOUT_CAPTURES:
            yield hanging("→ ", plain(finding.advice), style="green")
