"""The report as text for a terminal: the verdict first, then what it rests on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from trainscope.report.metrics_words import metrics_words
from trainscope.report.model import Report
from trainscope.report.text_captures import captures_section
from trainscope.report.text_gpu import gpu_sections, lacking_section
from trainscope.report.text_parts import hanging, heading, plain, plain_console
from trainscope.report.text_ranks import ranks_section
from trainscope.report.text_syncs import syncs_section
from trainscope.report.text_times import times_sections
from trainscope.report.text_unseen import in_short
from trainscope.report.text_what_if import findings_section, what_if_section

__all__ = ["render", "show"]

_NO_TERMINAL = (80, 24)
_NARROWEST = 40


def render(report: Report, *, width: int | None = None) -> str:
    """The report as text of at most ``width`` columns, without colour.

    None: as wide as ``COLUMNS`` says or the terminal is, 80 columns where standard output is none.
    """
    if width is None:
        width = max(shutil.get_terminal_size(_NO_TERMINAL).columns, _NARROWEST)
    file = StringIO()
    show(report, plain_console(file, width))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def show(report: Report, console: Console) -> None:
    """Print the report to a console, in its width and colours."""
    for part in _parts(report, console.width):
        console.print(part, highlight=False, markup=False, soft_wrap=False)


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    yield Text(plain(report.verdict), style="bold")
    if run := _run(report):
        yield Text("\n" + run, style="dim")
    yield from lacking_section(report)
    yield from times_sections(report, width)
    yield from syncs_section(report)
    yield from what_if_section(report, width)
    yield from findings_section(report)
    yield from gpu_sections(report)
    yield from ranks_section(report)
    yield from _metrics(report)
    yield from captures_section(report)
    yield from _not_seen(report)


def _run(report: Report) -> str:
    run = report.run
    parts = [
        plain(run.dir),
        f"rank {run.rank} of {run.world_size}" if run.world_size > 1 else None,
        "dry run" if run.dry_run else run.device,
        f"torch {run.torch}" if run.torch else None,
        f"trainscope {run.trainscope}" if run.trainscope else None,
    ]
    return ", ".join(part for part in parts if part)


def _metrics(report: Report) -> Iterator[RenderableType]:
    said = metrics_words(report.metrics)
    if said:
        yield heading("Metrics")
    for words in said:
        yield hanging("", plain(words))


def _not_seen(report: Report) -> Iterator[RenderableType]:
    detector = report.detector
    points = [] if detector is None else [*detector.disarmed, *in_short(detector.cannot_see)]
    points += [*report.not_seen, *report.notes]
    if points:
        yield heading("What could not be seen")
    for point in points:
        yield hanging("- ", plain(point))
