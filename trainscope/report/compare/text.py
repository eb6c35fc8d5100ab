"""A comparison as text: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from trainscope.report.compare.model import Comparison, Row, SyncChange, TimeChange
from trainscope.report.text_parts import hanging, heading, plain, plain_console, table
from trainscope.report.wording import duration

__all__ = ["render", "show"]


def render(comparison: Comparison, *, width: int = 80) -> str:
    """The comparison as text of at most ``width`` columns, without colour."""
    file = StringIO()
    show(comparison, plain_console(file, width))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def show(comparison: Comparison, console: Console) -> None:
    """Print the comparison to a console, in its width and colours."""
    for part in _parts(comparison):
        console.print(part, highlight=False, markup=False, soft_wrap=False)


def _parts(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(plain(comparison.verdict), style="bold")
    for word, side in (("before", comparison.before), ("after ", comparison.after)):
        device = "dry run" if side.dry_run else side.device
        named = f", {device}" if device else ""
        yield hanging(f"{word} ", plain(f"{side.path}, {side.steps:,} steps{named}"), style="dim")
    yield heading("Time of a step")
    yield _times([comparison.step, *comparison.phases])
    if comparison.idle:
        yield heading("GPU idle per step, from the windows")
        yield _times(comparison.idle)
    if comparison.operators:
        yield heading("Kernel time per step by operator, from the windows")
        yield _rows(comparison.operators)
    yield from _syncs("New syncs", comparison.syncs_new)
    yield from _syncs("Syncs that are gone", comparison.syncs_gone)
    yield from _syncs("Syncs that come more or less often", comparison.syncs_changed)
    for title, findings in (
        ("New findings", comparison.findings_new),
        ("Findings that are gone", comparison.findings_gone),
    ):
        if findings:
            yield heading(title)
        for finding in findings:
            yield hanging("", plain(finding))
    if comparison.notes:
        yield heading("How far this can be trusted")
    for note in comparison.notes:
        yield hanging("- ", plain(note))


def _times(changes: Sequence[TimeChange]) -> RenderableType:
    grid = table("", "before", "after", "change", "95 % interval")
    for each in changes:
        grid.add_row(
            plain(each.name),
            _ms(each.before_ms),
            _ms(each.after_ms),
            "" if each.ratio is None else f"{(each.ratio - 1) * 100:+.1f} %",
            _band(each),
        )
    return grid


def _band(change: TimeChange) -> str:
    if change.band is None:
        return ""
    low, high = ((bound - 1) * 100 for bound in change.band)
    return f"{low:+.1f} to {high:+.1f} %" + ("" if change.told else " (noise)")


def _rows(rows: Sequence[Row]) -> RenderableType:
    grid = table("", "before", "after")
    for row in rows:
        grid.add_row(plain(row.name), _ms(row.before_ms), _ms(row.after_ms))
    return grid


def _ms(ms: float | None) -> str:
    return "-" if ms is None else duration(ms)


def _syncs(title: str, syncs: Sequence[SyncChange]) -> Iterator[RenderableType]:
    if syncs:
        yield heading(title)
    for sync in syncs:
        lines = ", ".join(map(str, sync.lines_after or sync.lines_before))
        rate = f"{_rate(sync.per_step_before)} before, {_rate(sync.per_step_after)} after"
        yield hanging("", plain(f"{sync.file}:{lines} in {sync.function} [{sync.kind}], {rate}"))
        if sync.source:
            yield hanging("", plain(sync.source), indent=6, style="dim")


def _rate(per_step: float | None) -> str:
    return "none" if per_step is None else f"{per_step:.3g} a step"
