"""``Basis``: what a report and its page both rest on, worked out once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from trainscope.analysis.examined import Examined, best_window, examine
from trainscope.analysis.noted_sites import LiveRecord
from trainscope.analysis.replay.what_if import MeasuredWait, WhatIf, what_if
from trainscope.analysis.steps import StepTimes, time_steps
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_syncs import WindowSync
from trainscope.errors import ConfigError
from trainscope.report.build_times import spread_ms
from trainscope.report.build_what_if import site_words, with_kind
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.paths import relative_path
from trainscope.trace.trace import Trace

__all__ = ["Basis", "basis_of"]

_STEPS_FOR_QUARTILES = 8
_SAME_STEP = 0.01


@dataclass(frozen=True, eq=False)
class Basis:
    """A trace, the times of its recorded steps, and its window with most GPU work as replayed."""

    trace: Trace
    times: StepTimes
    step_ms: float | None
    """Of a step with no profiler on: as given, else as recorded live; None where neither is."""
    captured: Examined | None
    """None where no window has GPU work."""
    replay: WhatIf | None


def basis_of(trace: Trace, step_ms: float | None = None, keep: Collection[str] = ()) -> Basis:
    """Work it out; ``step_ms`` is the time of a step with no profiler on, where it is known.

    ``keep`` names places that wait and must stay, in the report's words or as ``file:line``. Raises
    ConfigError for one that is not in the captured window.
    """
    times = time_steps(trace)
    others_ms: list[float] = []
    if step_ms is None and len(times.step):
        step_ms = spread_ms(times.duration_ns).median
        others_ms = _quartiles_ms(times, step_ms)
    window = best_window(trace.windows)
    captured = None if window is None else examine(window, trace.syncs, _record(trace))
    kept = _kept(() if captured is None else captured.syncs, keep, trace.info.cwd)
    replay = None if captured is None else _replayed(trace, captured, step_ms, others_ms, kept)
    return Basis(trace, times, step_ms, captured, replay)


def _quartiles_ms(times: StepTimes, median_ms: float) -> list[float]:
    """How long the shorter and the longer steps take, where that is not as long as the others."""
    if len(times.step) < _STEPS_FOR_QUARTILES:
        return []
    quartiles_ms = np.quantile(times.duration_ns, (0.25, 0.75)) / NS_PER_MS
    return [each for each in quartiles_ms.tolist() if abs(each / median_ms - 1.0) > _SAME_STEP]


def _record(trace: Trace) -> LiveRecord:
    if not trace.noted_waits:
        return LiveRecord()  # a run has millions of steps, and nothing to tie to them
    ranges = trace.ranges
    steps = np.flatnonzero((ranges.depth == 0) & (ranges.step >= 0))
    numbers = ranges.step[steps].tolist()
    return LiveRecord(
        trace.noted_waits,
        dict(zip(numbers, ranges.start_ns[steps].tolist(), strict=True)),
        dict(zip(numbers, ranges.end_ns[steps].tolist(), strict=True)),
    )


def _kept(
    syncs: Sequence[WindowSync], keep: Collection[str], cwd: str | None
) -> frozenset[WindowSite]:
    """The sites that ``keep`` names."""
    if not keep:
        return frozenset()
    named: dict[str, set[WindowSite]] = {}
    of_kind: dict[str, set[WindowSite]] = {}
    for site in dict.fromkeys(sync.site for sync in syncs):
        words = [site_words(site, cwd)]
        if site.file is not None:
            words += [f"{file}:{site.line}" for file in (site.file, relative_path(site.file, cwd))]
        for each in words:
            named.setdefault(each, set()).add(site)
            of_kind.setdefault(with_kind(each, site), set()).add(site)
    known = {**of_kind, **named}
    for each in keep:
        if each not in known:
            places = ", ".join(sorted(map(repr, named))) or "none: nothing waits in it"
            raise ConfigError(
                f"keep={each!r} is no place that waits in the captured window; known are {places}"
            )
    return frozenset(site for each in keep for site in known[each])


def _replayed(
    trace: Trace,
    captured: Examined,
    step_ms: float | None,
    others_ms: Sequence[float],
    kept: frozenset[WindowSite],
) -> WhatIf | None:
    allowed = {(site.file, site.line, site.kind) for site in trace.syncs if site.allowed}

    def necessary(site: WindowSite) -> bool:
        live = site.live
        if site in kept:
            return True
        return live is not None and (live.file, live.line, live.kind) in allowed

    return what_if(
        captured.window,
        captured.steps,
        captured.syncs,
        step_ns=None if step_ms is None else step_ms * NS_PER_MS,
        other_steps_ns=[each * NS_PER_MS for each in others_ms],
        necessary=necessary,
        measured_wait=_measured_wait,
    )


def _measured_wait(site: WindowSite) -> MeasuredWait | None:
    """How long a step waits at a site as the live detector timed it."""
    live = site.live
    if live is None or live.blocked_ns_median is None or site.per_step is None:
        return None
    mean_ns = live.blocked_ns_total / live.timed
    return MeasuredWait(
        ns_per_step=live.blocked_ns_median * site.per_step,
        doubt_ns=abs(mean_ns - live.blocked_ns_median) * site.per_step,
    )
