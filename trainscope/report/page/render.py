"""``render(report, basis)``: the page, one self-contained HTML file that works offline."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from trainscope.report import gpu_words
from trainscope.report import json as json_report
from trainscope.report.basis import Basis
from trainscope.report.build_what_if import MIN_GAIN
from trainscope.report.metrics_words import metrics_words
from trainscope.report.model import Finding, Report
from trainscope.report.model_gpu import GpuReport
from trainscope.report.page.bars import bars
from trainscope.report.page.charts import curve
from trainscope.report.page.history import History, Series, history
from trainscope.report.page.pictures import timeline
from trainscope.report.page.timeline import SPAN_KINDS, Timeline
from trainscope.report.replay_trust import trust_in_words
from trainscope.report.steps_words import left_out_in_words
from trainscope.report.text_parts import plain
from trainscope.report.text_unseen import in_short
from trainscope.report.text_what_if import taken_out
from trainscope.report.wording import count_of, duration, number_ranges, range_name, through

__all__ = ["render"]

MOST_ROWS = 30
_BETWEEN_SENTENCES = r"(?<=[.!?]) (?=[A-Z0-9])|(?<=x\)\.) "
"""A sentence may begin with a place, in small letters, but then a speedup ends the one before."""
_KIND_WORDS = {
    "op": "CPU in operators",
    "call": "CPU in CUDA calls",
    "wait": "CPU waits for the GPU",
    "kernel": "GPU kernels",
    "copy": "GPU copies",
    "set": "GPU memsets",
    "collective": "GPU collectives",
    "phase": "other phases",
    "queue": "launched, waiting for the GPU",
}


def render(report: Report, basis: Basis) -> str:
    """The page of a report; ``basis`` is what it was built on, for the pictures and curves.

    Texts from the trace (names, sources, paths) are escaped wherever they stand.
    """
    drawn = None if basis.captured is None else timeline(basis.captured, basis.replay)
    first, *others = re.split(_BETWEEN_SENTENCES, report.verdict)
    return _template().render(
        report=report,
        first=list(_marked(first, [sync.place for sync in report.syncs if sync.place])),
        others=others,
        run=_run(report),
        numbers=list(_numbers(report)),
        timeline=drawn,
        legend=_legend(drawn),
        findings=_findings(report),
        snippets={(f.code, f.site): f.snippet for f in report.findings if f.snippet},
        bars=list(bars(report)),
        curves=list(_curves(history(basis.trace), left_out_in_words(report.steps))),
        metrics=metrics_words(report.metrics),
        unseen=_unseen(report),
        most=MOST_ROWS,
        gpu_words=gpu_words,
        number_ranges=number_ranges,
        range_name=range_name,
        duration=duration,
        count_of=count_of,
        through=through,
        taken_out=taken_out,
        trust_in_words=trust_in_words,
        worth=lambda gain_ms: _is_worth_it(report, gain_ms),
        css=Markup(_resource("page.css")),
        js=Markup(_resource("page.js")),
        report_json=_for_script(json_report.render(report)),
        timeline_json=_for_script(
            json.dumps(None if drawn is None else dataclasses.asdict(drawn), separators=(",", ":"))
        ),
    )


def _template():
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.from_string(_resource("page.html.j2"))


def _shown(value: object) -> object:
    """A text without what would turn around or hide the words after it."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\n".join(map(plain, value.split("\n")))  # a snippet has lines


def _resource(name: str) -> str:
    return files("trainscope.report.page").joinpath(name).read_text(encoding="utf-8")


def _for_script(text: str) -> Markup:
    """JSON that cannot end the script element around it, whatever names it holds."""
    for sign, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"),
                       ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):  # fmt: skip
        text = text.replace(sign, code)
    return Markup(text)


def _run(report: Report) -> str:
    run = report.run
    steps = report.steps
    parts = [
        run.dir,
        f"rank {run.rank} of {run.world_size}" if run.world_size > 1 else None,
        "dry run" if run.dry_run else run.device,
        f"torch {run.torch}" if run.torch else None,
        f"{count_of(steps.count, 'step')}, counted by {steps.counted_by}"
        if steps.count and steps.counted_by
        else None,
    ]
    return " · ".join(part for part in parts if part)


def _marked(sentence: str, places: list[str]) -> Iterator[tuple[str, bool]]:
    """Pieces of a sentence, and whether each is a place in the user's code."""
    known = sorted(set(places), key=len, reverse=True)
    if not known:
        yield sentence, False
        return
    for number, words in enumerate(re.split(f"({'|'.join(map(re.escape, known))})", sentence)):
        if words:
            yield words, number % 2 == 1


def _is_worth_it(report: Report, gain_ms: float | None) -> bool:
    """Whether a gain is more than a replay can miss."""
    what_if = report.what_if
    if gain_ms is None or what_if is None or what_if.baseline is None:
        return False
    base = what_if.baseline
    return gain_ms >= MIN_GAIN * (base.measured_step_ms or base.replayed_step_ms)


def _numbers(report: Report) -> Iterator[tuple[str, str]]:
    """The figures under the verdict."""
    wall = report.steps.wall_ms
    what_if = report.what_if
    measured = what_if.baseline.measured_step_ms if what_if and what_if.baseline else None
    if measured is not None:
        yield duration(measured), "step now, no profiler on"
    elif wall is not None:
        words = "step (median)" if report.run.source == "run" else "step under the profiler"
        dry = report.run.dry_run
        yield duration(wall.median), "step of the dry run, not of training" if dry else words
    if what_if is not None and what_if.removals:
        best = what_if.removals[0]
        yield duration(best.step_ms), "without its syncs (replayed)"
        low, high = best.band or (best.speedup, best.speedup)
        yield f"{best.speedup:.2f}x", f"gain; {low:.2f} to {high:.2f}"
    if report.gpu is not None and report.idle is not None:
        yield duration(report.idle.per_step_ms), f"GPU idle a step, {_of_the_window(report.gpu)}"
    blocked = [sync.blocked_ms_total for sync in report.syncs if sync.during == "training"]
    known = [each for each in blocked if each is not None]
    if known and report.steps.count and sum(known) >= 0.001:
        yield duration(sum(known) / report.steps.count), "blocked a step; most of it is not lost"


def _of_the_window(gpu: GpuReport) -> str:
    """How long a step of the window is, lest the idle time look longer than the step itself."""
    if len(gpu.devices) != 1:
        return "in the window"
    (device,) = gpu.devices
    return f"of {duration(device.busy_ms_per_step + device.idle_ms_per_step)} under the profiler"


def _findings(report: Report) -> list[Finding]:
    """Those that the tables above do not show."""
    return [each for each in report.findings if not each.code.startswith("TS1")][:MOST_ROWS]


def _curves(found: History, left_out: str) -> Iterator[tuple[str, Markup, str]]:
    if found.step_ms is not None and len(found.step_ms.step) > 1:
        yield "step time, ms", curve(found.step_ms, " ms"), left_out
    for series in found.metrics:
        if series.step:
            yield series.name, curve(series), _not_finite(series)


def _not_finite(series: Series) -> str:
    return f"{count_of(series.left_out, 'value')} not finite" if series.left_out else ""


def _legend(drawn: Timeline | None) -> list[dict[str, object]]:
    """The kinds that the pictures show."""
    if drawn is None:
        return []
    used = {kind for picture in drawn.pictures for lane in picture.lanes for kind in lane.kind}
    return [
        {"place": place, "words": _KIND_WORDS.get(SPAN_KINDS[place], SPAN_KINDS[place])}
        for place in sorted(used)
    ]


def _unseen(report: Report) -> list[str]:
    words = [] if report.detector is None else [*report.detector.disarmed]
    words += [] if report.detector is None else in_short(report.detector.cannot_see)
    words += [] if report.gpu is None else report.gpu.problems
    words += [] if report.capture is None else report.capture.missing
    return list(dict.fromkeys([*words, *report.not_seen, *report.notes]))
