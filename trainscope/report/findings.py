"""What to look at, worst first: one finding a waiting line, then the captures and the detector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainscope.analysis.syncs import Line
from trainscope.catalogue.codes import CODES, RACE
from trainscope.catalogue.kinds import KINDS
from trainscope.catalogue.snippets import snippet
from trainscope.report.build_what_if import LineKey
from trainscope.report.model import Finding, StepsReport
from trainscope.report.verdict import site_name, wait_in_words
from trainscope.report.wording import duration
from trainscope.trace.paths import relative_path
from trainscope.trace.trace import Trace

__all__ = ["GAIN_UNKNOWN", "find"]

GAIN_UNKNOWN = "what removing it would gain needs a captured window"
_TELL_STEPS = (
    "a window opens at a step that can be told: in the process that trains, let the loop be one "
    "over scope.steps(loader) of a trainscope.Scope"
)


def find(
    trace: Trace,
    steps: StepsReport,
    lines: Sequence[Line],
    gains_ms: Mapping[LineKey, float],
) -> list[Finding]:
    """Findings of one rank; ``lines`` are the unwanted ones, worst first."""
    cwd = trace.info.cwd
    return [
        *(_sync(line, steps, cwd, gains_ms) for line in lines),
        *_races(trace),
        *_detector(trace),
        *_capture(trace, steps.count),
    ]


def _sync(
    line: Line, steps: StepsReport, cwd: str | None, gains_ms: Mapping[LineKey, float]
) -> Finding:
    site = line.site
    where = site_name(line, cwd)
    kind = KINDS.get(site.kind)
    evidence = wait_in_words(line, steps)
    gain_ms = gains_ms.get((site.file, site.line, site.kind))
    gain = GAIN_UNKNOWN if gain_ms is None else f"replayed without it {duration(gain_ms)} less"
    instead = None
    if kind is not None:  # a newer version's
        instead = snippet(site.kind, site.source, phase=site.phase, via=site.via)
    return Finding(
        code=site.code,
        title=f"{where}: {site.kind if kind is None else kind.title}",
        site=where,
        gain_ms_per_step=gain_ms,
        evidence=f"{evidence}; {gain}",
        advice=site.advice,
        snippet=instead,
    )


def _own(code: str, evidence: str, advice: str, site: str | None = None) -> Finding:
    title = CODES[code] if site is None else f"{site}: {CODES[code]}"
    return Finding(
        code=code, title=title, site=site, gain_ms_per_step=None, evidence=evidence, advice=advice
    )


def _races(trace: Trace) -> list[Finding]:
    races = trace.detector.races if trace.detector is not None else ()
    return [
        _own(
            RACE,
            f"`{race.source}`, {race.count} times",
            race.advice,
            site=f"{relative_path(race.file, trace.info.cwd)}:{race.line}",
        )
        for race in races
    ]


def _detector(trace: Trace) -> list[Finding]:
    unwatched = () if trace.detector is None else trace.detector.unwatched
    if not unwatched:
        return []
    advice = "keep catch_warnings and warnings.resetwarnings out of the loop, or run without them"
    return [_own("TS502", "; ".join(unwatched), advice)]


def _capture(trace: Trace, steps: int) -> list[Finding]:
    state = trace.captures
    if state is None:
        return []
    if not state.windows:
        asked = f"schedule {trace.info.schedule}" if trace.info.schedule else "a schedule was given"
        schedule = trace.info.schedule or {}
        advice = _TELL_STEPS if trace.info.steps_in_doubt else _long_enough(schedule, steps)
        return [_own("TS504", state.note or asked, advice)]
    if state.complete:
        return []
    lacking = "; ".join([*state.missing, *([state.note] if state.note else [])])
    return [
        _own(
            "TS505",
            lacking or "cut short",
            "let the loop run to the end of the window, with no other profiler at work",
        )
    ]


def _long_enough(schedule: Mapping[str, object], steps: int) -> str:
    """What the loop has to run through for one window, with the numbers where they are known.

    ``steps`` is what it ran through: where that is as many, something else was in the way.
    """
    parts = [(name, schedule.get(name)) for name in ("skip_first", "wait", "warmup", "active")]
    known = [(name, number) for name, number in parts if isinstance(number, int) and number]
    if not known:
        return "let the loop run for at least wait + warmup + active steps"
    needed = sum(number for _, number in known)
    if steps >= needed:
        return (
            "the loop ran long enough: remove what was in the way of the window, and run it again"
        )
    sum_of = " + ".join(f"{name} {number}" for name, number in known)
    return f"let the loop run for at least {needed} steps ({sum_of})"
