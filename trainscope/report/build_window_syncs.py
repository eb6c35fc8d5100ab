"""The syncs of a report whose trace has no recording around it: as its window shows them."""

from __future__ import annotations

from statistics import median

from trainscope.analysis.examined import Examined
from trainscope.analysis.replay.what_if import WhatIf
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_syncs import WindowSync, by_site
from trainscope.catalogue.advice import advice
from trainscope.catalogue.kinds import KINDS
from trainscope.report.build_what_if import gains_by_site, site_words
from trainscope.report.model import Sync
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.paths import relative_path

__all__ = ["MOST_SITES", "as_window_syncs"]

MOST_SITES = 200
"""Places in a report: a trace may have thousands."""


def as_window_syncs(captured: Examined, replay: WhatIf | None, cwd: str | None) -> list[Sync]:
    """Those in steps and not asked for first, most gain first, then by how long they blocked.

    Counts are of the window. What only a recording knows is null.
    """
    gains_ms = gains_by_site(replay)
    found = [
        _sync(site, waits, len(captured.steps), gains_ms.get(site), cwd)
        for site, waits in list(by_site(captured.syncs).items())[:MOST_SITES]
    ]
    return sorted(found, key=_rank)


def _rank(sync: Sync) -> tuple[bool, bool, float, float]:
    blocked_ms = sync.blocked_ms_total or 0.0
    return sync.explicit, sync.during is None, -(sync.gain_ms_per_step or 0.0), -blocked_ms


def _sync(
    site: WindowSite,
    waits: tuple[WindowSync, ...],
    steps: int,
    gain_ms: float | None,
    cwd: str | None,
) -> Sync:
    kind = KINDS.get(site.kind)
    blocked_ns = [wait.blocked_ns for wait in waits]
    seen = {wait.step for wait in waits if wait.step >= 0}
    return Sync(
        code=kind.code if kind else None,
        kind=site.kind,
        explicit=bool(kind and kind.explicit),
        allowed=None,
        place=site_words(site, cwd),
        file=None if site.file is None else relative_path(site.file, cwd),
        line=site.line,
        line_is=site.line_is,
        function=site.function,
        source=None,
        via=None,
        phase=site.phase,
        thread=site.thread,
        during="training" if site.in_steps else None,
        count=len(waits),
        per_step=site.per_step if site.in_steps else None,
        steps=min(len(seen), steps) or None,
        timed=len(waits),
        blocked_ms_total=sum(blocked_ns) / NS_PER_MS,
        blocked_ms_median=median(blocked_ns) / NS_PER_MS,
        gain_ms_per_step=gain_ms,
        advice=advice(site.kind, source="", phase=site.phase, during="training", via=None)
        if kind
        else "",
    )
