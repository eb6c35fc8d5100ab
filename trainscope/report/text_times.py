"""The times of a text report: steps, phases, and the ranges that are no phases."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from trainscope.report.model import LongSteps, RangeReport, Report
from trainscope.report.steps_words import left_out_in_words, of_several_loops
from trainscope.report.text_parts import hanging, heading, plain, table
from trainscope.report.wording import count_of, duration, number_ranges, range_name

__all__ = ["times_sections"]

MAX_RANGES = 20
"""Ranges shown, over both tables."""
_WIDE = 72
"""Columns from which a table has room for percentiles."""
_OFTEN = (
    "evaluation is in most steps here: a forward in eval mode or without gradients, be it a "
    "test's, a metric's, a teacher's, a reference model's or a rollout's"
)
_NAMED = 8
"""Long steps named by their numbers."""


def times_sections(report: Report, width: int) -> Iterator[RenderableType]:
    """Steps with what is odd about them, phases in the order of a step, ranges by their time."""
    yield from _steps(report)
    yield from _phases(report, width)
    yield from _ranges(report, width)


def _steps(report: Report) -> Iterator[RenderableType]:
    steps = report.steps
    dry = report.run.dry_run
    if report.run.source != "run":
        window = f"Captured window of {count_of(steps.count, 'step')}"
        yield heading(f"{window} (times under the profiler)" if steps.count else "Captured window")
    else:
        yield heading("Steps (times of the dry run, not of training)" if dry else "Steps")
    counted = [count_of(steps.count, "step")]
    if steps.optimizer_steps == 0 and steps.count:  # Keras and fastai have optimizers of their own
        counted.append("no step of a torch.optim optimizer seen")
    elif steps.optimizer_steps is not None:
        counted.append(count_of(steps.optimizer_steps, "optimizer step"))
    if steps.counted_by:
        unknown = steps.counted_by.startswith("cannot tell")
        counted.append(steps.counted_by if unknown else f"counted by {steps.counted_by}")
    yield hanging("", plain(", ".join(counted)))
    if steps.wall_ms is not None:
        wall = steps.wall_ms
        times = (
            f"{duration(wall.median)} median, {duration(wall.p10)} to {duration(wall.p90)} "
            "(10th to 90th percentile)"
        )
        out = left_out_in_words(steps)
        yield hanging("", times + (f", {out}" if out else ""))
    if steps.long is not None:
        yield hanging("", _long(steps.long, steps.counted_by))
    if report.overhead is not None:
        cost = duration(report.overhead.per_step_us / 1e3)
        share = report.overhead.share
        yield hanging(
            "",
            f"trainscope itself: at least {cost} a step"
            + ("" if share is None else f" ({share:.1%})"),
        )


def _long(long: LongSteps, counted_by: str | None) -> str:
    other = ", or they are of another loop" if of_several_loops(counted_by) else ""
    named = number_ranges(long.first[:_NAMED])
    more = ", …" if long.count > len(long.first[:_NAMED]) else ""
    number = "step" if long.count == 1 else "steps"
    return (
        f"{long.count:,} of {count_of(long.of, 'step')} took more than {long.over_median:g} times "
        f"the median, {long.share:.0%} of the time: something else happens in them"
        f"{other} ({number} {named}{more}); the shares below leave them out"
    )


def _phases(report: Report, width: int) -> Iterator[RenderableType]:
    if not report.phases:
        return
    spreads = ("p10", "p90") if width >= _WIDE else ()
    grid = table("phase", "median", *spreads, "share", "steps")
    for phase in report.phases:
        spread = phase.per_step_ms
        grid.add_row(
            Text(plain(range_name(phase.name))),
            duration(spread.median),
            *(duration(getattr(spread, name)) for name in spreads),
            "" if phase.share is None else f"{phase.share:.1%}",
            "" if phase.steps is None else f"{phase.steps:,}",
        )
    rest = 1 - sum(phase.share or 0 for phase in report.phases)
    grid.add_row("outside phases", "", *("" for _ in spreads), f"{max(rest, 0):.1%}", "")
    yield heading("Phases: CPU time in a step")
    yield grid
    if _evaluates_often(report):
        yield hanging("", _OFTEN)


def _evaluates_often(report: Report) -> bool:
    """Whether most steps hold what ``trainscope run`` calls an evaluation."""
    if not (report.steps.counted_by or "").startswith("trainscope run"):
        return False  # the program may have named a phase so
    steps = {phase.name: phase.steps or 0 for phase in report.phases}
    return 2 * steps.get("evaluation", 0) > max(steps.values())


def _ranges(report: Report, width: int) -> Iterator[RenderableType]:
    """The longest of both kinds, each kind in a table of its own."""
    shown = report.ranges[:MAX_RANGES]
    inside = [each for each in shown if each.in_steps]
    outside = [each for each in shown if not each.in_steps]
    if inside:
        yield heading("Ranges inside phases: CPU time in a step")
        yield _inside(inside, ("p10", "p90") if width >= _WIDE else ())
    if outside:
        yield heading("Ranges outside steps")
        grid = table("range", "calls", "in all")
        for each in outside:
            grid.add_row(_named(each), f"{each.calls:,}", duration(each.total_ms))
        yield grid
    rest = len(report.ranges) - len(shown) + report.ranges_left_out
    if rest:
        yield hanging("", f"and {rest:,} more names of less time")


def _inside(ranges: list[RangeReport], spreads: tuple[str, ...]) -> RenderableType:
    grid = table("range", "median", *spreads, "calls", "steps")
    for each in ranges:
        spread = each.per_step_ms
        grid.add_row(
            _named(each),
            "" if spread is None else duration(spread.median),
            *("" if spread is None else duration(getattr(spread, name)) for name in spreads),
            f"{each.calls:,}",
            "" if each.steps is None else f"{each.steps:,}",
        )
    return grid


def _named(each: RangeReport) -> Text:
    name = range_name(each.name)
    return Text(plain(name if each.inside is None else f"{name}, in {range_name(each.inside)}"))
