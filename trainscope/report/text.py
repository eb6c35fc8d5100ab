"""The report as text for a terminal: the verdict first, then what it rests on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from trainscope.report.model import Report
from trainscope.report.text_captures import captures_section
from trainscope.report.text_gpu import gpu_sections, lacking_section
from trainscope.report.text_parts import hanging, heading, plain
from trainscope.report.text_ranks import ranks_section
from trainscope.report.text_syncs import syncs_section
from trainscope.report.text_times import times_sections
from trainscope.report.text_unseen import in_short
from trainscope.report.text_what_if import findings_section, what_if_section
from trainscope.report.wording import count_of

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
    console = Console(file=file, width=width, color_system=None, force_terminal=False)
    show(report, console)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def show(report: Report, console: Console) -> None:
    """Print the report to a console, in its width and colours."""
    for part in _parts(report, console.width):
        console.print(part, highlight=False, markup=False, soft_wrap=False)


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    yield Text(plain(report.verdict), style="bold")
    yield Text("\n" + _run(report), style="dim")
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
    metrics = report.metrics
    if metrics is None or not metrics.logged:
        return
    yield heading("Metrics")
    line = f"{count_of(metrics.logged, 'log call')}, {metrics.written:,} arrived"
    yield hanging("", line + (f", {metrics.dropped:,} dropped" if metrics.dropped else ""))
    if metrics.nonfinite_count:
        shown = ", ".join(metrics.nonfinite[:5])
        more = metrics.nonfinite_count - min(len(metrics.nonfinite), 5)
        yield hanging("", plain(f"not finite: {shown}") + (f" and {more:,} more" if more else ""))
    for sink in metrics.sinks:
        words = [f"{sink.name}: {count_of(sink.written, 'record')}"]
        if sink.dropped:
            words.append(f"{sink.dropped:,} dropped")
        if sink.disabled:
            words.append("switched off")
        words.extend(text for text in (sink.error, sink.note) if text)
        yield hanging("", plain(", ".join(words)))


def _not_seen(report: Report) -> Iterator[RenderableType]:
    detector = report.detector
    points = [] if detector is None else [*detector.disarmed, *in_short(detector.cannot_see)]
    points += [*report.not_seen, *report.notes]
    if points:
        yield heading("What could not be seen")
    for point in points:
        yield hanging("- ", plain(point))
