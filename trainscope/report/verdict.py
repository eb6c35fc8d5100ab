"""The first line of a report: what the run shows, in plain words, and no more than it shows."""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.analysis.syncs import Line
from trainscope.report.model import StepsReport
from trainscope.report.verdict_outside import outside_in_words, places_outside
from trainscope.report.wording import count_of, duration, places
from trainscope.trace.paths import relative_path
from trainscope.trace.trace import Trace

__all__ = ["site_name", "verdict", "wait_in_words"]

_ABOUT_ONCE = 0.95
"""Waits per step from which "of every step" is true."""
_SOURCE_CHARS = 60


def verdict(
    trace: Trace, steps: StepsReport, lines: Sequence[Line], gain: Sequence[str] = ()
) -> str:
    """One to three sentences; ``lines`` are the unwanted ones, worst first.

    A live recording knows how long the CPU was blocked, never what removing a wait would gain:
    ``gain`` is what a captured window says of that, and comes first.
    """
    sentences = [*gain]
    dry = trace.info.dry_run
    outside = len(places_outside(trace, lines))
    if dry:
        sentences.append(_dry_run(trace, steps, lines, outside))
    elif lines:
        sentences.extend(_waits(trace, steps, lines, known=bool(gain)))
    else:
        sentences.append(_no_wait(trace, steps, outside))
    known = bool(steps.count) and not trace.info.steps_in_doubt
    elsewhere = outside_in_words(trace, lines, steps_known=known)
    if elsewhere is not None:
        sentences.append(elsewhere)
    if trace.detector is not None and trace.detector.races:
        race = trace.detector.races[0]
        where = f"{relative_path(race.file, trace.info.cwd)}:{race.line}"
        sentences.append(f"{where} reads a value before its copy has landed.")
    if trace.metrics is not None and trace.metrics.nonfinite:
        name, step, value = trace.metrics.nonfinite[0]
        sentences.append(f"{name} was {value} at step {step}.")
    return " ".join(sentences)


def site_name(line: Line, cwd: str | None) -> str:
    """``train.py:42``."""
    return f"{relative_path(line.site.file, cwd)}:{line.site.line}"


def wait_in_words(line: Line, steps: StepsReport) -> str:
    """How long and how often a line waits: ``10.7 ms of every 20.4 ms step``, ``20 times``."""
    times = count_of(line.count, "time")
    rare = 0 < line.steps < _ABOUT_ONCE * steps.count
    if steps.wall_ms is None or line.per_step is None:
        if line.blocked_ns_total is None:
            return times
        return f"{times}, {duration(line.blocked_ns_total / 1e6)} in all"
    step = duration(steps.wall_ms.median)
    some = f"{line.steps:,} of " if rare else ""
    often = f"{times} in {some}{count_of(steps.count, 'step')} of {step}"
    if line.blocked_ns_per_step is None or line.blocked_ns_median is None:
        return f"{often}, for an unknown time"
    if line.per_step >= _ABOUT_ONCE and not rare:
        return f"{duration(line.blocked_ns_per_step / 1e6)} of every {step} step"
    return f"{often}, {duration(line.blocked_ns_median / 1e6)} each"


def _waits(trace: Trace, steps: StepsReport, lines: Sequence[Line], *, known: bool) -> list[str]:
    worst = lines[0]
    where = site_name(worst, trace.info.cwd)
    source = worst.site.source
    shown = f" (`{_shortened(source)}`)" if source else ""
    how = wait_in_words(worst, steps)
    gain = "" if known else "; what removing it would gain is not known from this run"
    sentences = [] if steps.count else [_no_step(steps)]
    sentences.append(f"{where} made the CPU wait {how}{shown}{gain}.")
    others = len({line.place for line in lines}) - 1
    if others:
        sentences.append(f"{count_of(others, 'more line')} made it wait too.")
    disarmed = () if trace.detector is None else trace.detector.disarmed
    if disarmed:
        sentences.append(f"The detector was disarmed in {places(disarmed)}.")
    return sentences


def _no_wait(trace: Trace, steps: StepsReport, outside: int) -> str:
    detector = trace.detector
    length = "" if steps.wall_ms is None else f" of {duration(steps.wall_ms.median)}"
    ran = f"{count_of(steps.count, 'step')}{length}" if steps.count else ""
    if detector is None:
        return f"{ran or _no_step(steps)[:-1]}; whether anything made the CPU wait was not saved."
    if detector.mode == "off":
        return f"{ran or _no_step(steps)[:-1]}; the detector was off, so syncs are not known."
    if not trace.is_watched:
        return (
            f"{ran or _no_step(steps)[:-1]}; there was no GPU to wait for. "
            "A dry run finds the lines that would wait for one: `trainscope run`, or "
            "Scope(dry_run=True)."
        )
    if not steps.count:
        where = "" if trace.info.steps_in_doubt else "outside steps "
        return _no_step(steps) + ("" if outside else f" No sync was seen {where}either.")
    if detector.disarmed:
        return f"No sync seen, but the detector was disarmed in {places(detector.disarmed)}."
    if detector.armed_steps < steps.count:
        armed = f"{detector.armed_steps:,} of {count_of(steps.count, 'step')}"
        return f"No sync seen, but the detector was armed in {armed} only."
    asked = [s for s in trace.syncs if s.during == "training"]
    if asked:
        lines = len({(site.file, site.line) for site in asked})
        total = count_of(sum(site.count for site in asked), "time")
        return (
            f"No sync in {ran} but those asked for or allowed: {count_of(lines, 'line')}, {total}."
        )
    return f"No sync in {ran} (detector armed in all of them)."


def _no_step(steps: StepsReport) -> str:
    how = steps.counted_by
    if how is None:
        return "No training step was seen."
    reason = how if how.startswith("cannot tell") else f"counted by {how}"
    return f"No training step was seen ({reason})."


def _dry_run(trace: Trace, steps: StepsReport, lines: Sequence[Line], outside: int) -> str:
    told = steps.count and not trace.info.steps_in_doubt
    over = f" in {count_of(steps.count, 'step')}" if told else ""
    if trace.detector is None:
        return f"Dry run{over}: what would make the CPU wait was not saved."
    if trace.detector.mode == "off":
        return f"Dry run{over}: the detector was off, so nothing was looked for."
    if not steps.count:
        return f"Dry run. {_no_step(steps)}{_dry_without_steps(trace, lines, outside)}"
    if not lines:
        return f"Dry run: no line would make the CPU wait for the GPU{over}."
    return f"Dry run: {_would_wait(lines)}{over}; first {_first(trace, lines)}."


def _dry_without_steps(trace: Trace, lines: Sequence[Line], outside: int) -> str:
    doubt = trace.info.steps_in_doubt  # there may be steps, and these lines in them
    if lines:
        where = " " if doubt else " Outside steps "
        return f"{where}{_would_wait(lines)}; first {_first(trace, lines)}."
    if outside:
        return ""
    if doubt:
        return " No line that would make the CPU wait for the GPU was seen either."
    return " No line outside steps would make the CPU wait for the GPU either."


def _would_wait(lines: Sequence[Line]) -> str:
    places = len({line.place for line in lines})
    return f"{count_of(places, 'line')} would make the CPU wait for the GPU"


def _first(trace: Trace, lines: Sequence[Line]) -> str:
    """The worst line and how often it waits, in all ways: a trainer's line waits in many."""
    worst = lines[0]
    times = sum(line.count for line in lines if line.place == worst.place)
    return f"{site_name(worst, trace.info.cwd)} ({count_of(times, 'time')})"


def _shortened(source: str) -> str:
    return source if len(source) <= _SOURCE_CHARS else source[: _SOURCE_CHARS - 1] + "…"
