"""The report as text for a terminal: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from trainscope.report.model import Report
from trainscope.report.text_parts import hanging, heading, plain, table
from trainscope.report.text_ranks import ranks_section
from trainscope.report.text_syncs import syncs_section
from trainscope.report.wording import count_of, duration

__all__ = ["render", "show"]

_WIDE = 72
"""Columns from which a table has room for percentiles."""
_ABOUT_CAPTURES = ("TS504", "TS505", "TS506")


def render(report: Report, *, width: int = 100) -> str:
    """The report as text of at most ``width`` columns, without colour."""
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
    yield from _steps(report)
    yield from _phases(report, width)
    yield from syncs_section(report)
    yield from ranks_section(report)
    yield from _metrics(report)
    yield from _captures(report)
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


def _steps(report: Report) -> Iterator[RenderableType]:
    steps = report.steps
    dry = report.run.dry_run
    yield heading("Steps (times of the dry run, not of training)" if dry else "Steps")
    counted = [count_of(steps.count, "step")]
    if steps.optimizer_steps is not None:
        counted.append(count_of(steps.optimizer_steps, "optimizer step"))
    if steps.counted_by:
        counted.append(f"counted by {steps.counted_by}")
    yield hanging("", plain(", ".join(counted)))
    if steps.wall_ms is not None:
        wall = steps.wall_ms
        times = (
            f"{duration(wall.median)} median, {duration(wall.p10)} to {duration(wall.p90)} "
            "(10th to 90th percentile)"
        )
        out = [
            f"{number:,} {what}"
            for number, what in (
                (steps.left_out.warm_up, "warm-up"),
                (steps.left_out.captured, "captured"),
            )
            if number
        ]
        yield hanging("", times + (f", {' and '.join(out)} left out" if out else ""))
    if report.overhead is not None:
        cost = duration(report.overhead.per_step_us / 1e3)
        share = report.overhead.share
        yield hanging(
            "", f"trainscope itself: {cost} a step" + ("" if share is None else f" ({share:.1%})")
        )


def _phases(report: Report, width: int) -> Iterator[RenderableType]:
    if not report.phases:
        return
    spreads = ("p10", "p90") if width >= _WIDE else ()
    grid = table("phase", "median", *spreads, "share", "steps")
    for phase in report.phases:
        spread = phase.per_step_ms
        grid.add_row(
            Text(plain(phase.name)),
            duration(spread.median),
            *(duration(getattr(spread, name)) for name in spreads),
            "" if phase.share is None else f"{phase.share:.1%}",
            "" if phase.steps is None else f"{phase.steps:,}",
        )
    rest = 1 - sum(phase.share or 0 for phase in report.phases)
    grid.add_row("outside phases", "", *("" for _ in spreads), f"{max(rest, 0):.1%}", "")
    yield heading("Phases: CPU time in a step")
    yield grid


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


def _captures(report: Report) -> Iterator[RenderableType]:
    capture = report.capture
    if capture is None:
        return
    yield heading("Captured windows")
    state = "complete" if capture.complete and capture.windows else "not complete"
    yield hanging("", f"{count_of(capture.windows, 'window')}, {state}")
    for missing in capture.missing:
        yield hanging("- ", plain(missing))
    for finding in report.findings:
        if finding.code in _ABOUT_CAPTURES:
            yield hanging("→ ", plain(finding.advice), style="green")


def _not_seen(report: Report) -> Iterator[RenderableType]:
    detector = report.detector
    points = [] if detector is None else [*detector.disarmed, *detector.cannot_see]
    points += [*report.not_seen, *report.notes]
    if points:
        yield heading("What could not be seen")
    for point in points:
        yield hanging("- ", plain(point))
