"""The syncs of a text report: those to look at in full, the others in one line each."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from trainscope.report.model import Report, Sync
from trainscope.report.text_parts import INDENT, hanging, heading, plain
from trainscope.report.wording import count_of, duration, through

__all__ = ["syncs_section"]

MAX_FULL = 20
MAX_SHORT = 20
_NUMBER_WIDTH = 10
_DURING = {"training": "", "between": " between or after steps", "": " outside steps"}
_NOT_GAIN = (
    "Blocked time is not what a line costs: a step gets shorter only by the time in which the GPU "
    "has nothing to do."
)
_TRY_IT, _SEE_BELOW = "Take the line out and compare the steps.", "What it costs stands below."


class _Row:
    """A place on the left and numbers in columns on the right; below it where it is too long."""

    def __init__(self, place: str, numbers: list[str], style: str = "") -> None:
        self._place = place
        self._numbers = "".join(number.rjust(_NUMBER_WIDTH) for number in numbers)
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        space = options.max_width - len(self._numbers)
        if cell_len(self._place) <= space:
            gap = " " * (space - cell_len(self._place))
            yield Text(self._place + gap + self._numbers, style=self._style, no_wrap=True)
        else:
            yield Text(self._place, style=self._style, overflow="fold")
            yield Text(self._numbers.rjust(options.max_width), style=self._style, no_wrap=True)


def syncs_section(report: Report) -> Iterator[RenderableType]:
    """Unwanted syncs with source and advice, then those asked for, allowed or outside training."""
    full = [sync for sync in report.syncs if _is_unwanted(sync, report)]
    short = [sync for sync in report.syncs if not _is_unwanted(sync, report)]
    if full:
        dry = report.run.dry_run
        yield heading(
            "Lines that would make the CPU wait" if dry else "Lines that make the CPU wait"
        )
        columns = ["count", "per step"] if dry else ["count", "per step", "blocked", "in all"]
        yield _Row("", columns, style="dim")
        for sync in full[:MAX_FULL]:
            yield from _in_full(sync, report)
        yield from _rest(len(full) - MAX_FULL)
        if not dry:
            known = report.what_if is not None and report.what_if.removals
            yield hanging("", f"{_NOT_GAIN} {_SEE_BELOW if known else _TRY_IT}", style="dim")
    if short:
        yield heading("Other waits: asked for, allowed, or outside training")
        for sync in short[:MAX_SHORT]:
            yield from _in_short(sync)
            if sync.during == "evaluation" and not (
                sync.explicit or sync.allowed is not None or sync.no_gpu_branch
            ):
                yield _advice(sync)
        yield from _rest(len(short) - MAX_SHORT)
    races = [] if report.detector is None else report.detector.races
    if races:
        yield heading("Values read before their copy has landed")
        for race in races:
            yield from _in_short(race)
            yield _advice(race)


def _is_unwanted(sync: Sync, report: Report) -> bool:
    if sync.explicit or sync.allowed is not None or sync.no_gpu_branch:
        return False
    if report.steps.count:
        return sync.during == "training"
    return sync.during in (None, "setup", "training", "between", "teardown")


def _in_full(sync: Sync, report: Report) -> Iterator[RenderableType]:
    some = _some_steps(sync, report)
    per_step = "" if some or sync.per_step is None else f"{sync.per_step:.2f}"
    numbers = [f"{sync.count:,}", per_step]
    if not report.run.dry_run:
        numbers += [
            "unknown" if ms is None else duration(ms)
            for ms in (sync.blocked_ms_median, sync.blocked_ms_total)
        ]
    yield _Row(" " * INDENT + plain(_place(sync)), numbers, style="bold")
    if sync.source:
        yield hanging("", plain(sync.source), indent=2 * INDENT, style="yellow")
    yield hanging("", plain(_circumstances(sync, some)), indent=2 * INDENT)
    yield _advice(sync)


def _in_short(sync: Sync) -> Iterator[RenderableType]:
    parts = [f"{sync.code} {sync.kind}"]
    if sync.explicit:
        parts.append("asked for")
    if sync.allowed is not None:
        parts.append(f"allowed: {sync.allowed}")
    if sync.no_gpu_branch:
        parts.append("only where there is no GPU")
    during = _DURING.get(sync.during or "", f" in {sync.during}")
    parts.append(count_of(sync.count, "time") + during)
    if sync.thread != "main":
        parts.append(f"on thread {sync.thread}")
    parts += filter(None, [through(sync.via, sync.vias)])
    if sync.blocked_ms_total is not None:
        parts.append(f"{duration(sync.blocked_ms_total)} in all")
    yield hanging("", plain(f"{_place(sync)}: {', '.join(parts)}"))
    if sync.source:
        yield hanging("", plain(sync.source), indent=2 * INDENT, style="yellow")


def _advice(sync: Sync) -> RenderableType:
    return hanging("→ ", plain(sync.advice), indent=2 * INDENT, style="green")


def _place(sync: Sync) -> str:
    if sync.source is None or sync.function is None:
        return sync.place or sync.kind
    return f"{sync.file}:{sync.line} in {sync.function}"


def _some_steps(sync: Sync, report: Report) -> str:
    """``in 3 of 48 steps``; empty where it was seen in all of them, and where that is not known."""
    if sync.steps is None or sync.steps >= report.steps.count:
        return ""
    return f"in {sync.steps:,} of {count_of(report.steps.count, 'step')}"


def _circumstances(sync: Sync, some_steps: str) -> str:
    parts = [f"{sync.code} {sync.kind}"]
    if some_steps:
        parts.append(some_steps)
    if sync.phase is not None:
        parts.append(f"in {sync.phase}")
    if sync.thread != "main":
        parts.append(f"on thread {sync.thread}")
    others = (sync.callers or 1) - 1
    # one caller in the same file is most often the call of main(), which tells nobody anything
    if sync.caller is not None and (others or sync.caller.rpartition(":")[0] != sync.file):
        more = f" and {count_of(others, 'other place')}" if others else ""
        parts.append(f"called from {sync.caller}{more}")
    parts += filter(None, [through(sync.via, sync.vias)])
    if sync.timed is not None and 0 < sync.timed < sync.count:
        parts.append(f"{sync.timed:,} of them timed")
    return ", ".join(parts)


def _rest(number: int) -> Iterator[RenderableType]:
    if number > 0:
        yield hanging("", f"and {number:,} more: --format json lists all")
