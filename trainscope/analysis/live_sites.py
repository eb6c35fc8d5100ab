"""Which site of the live detector a site of a window is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainscope.analysis.kind_families import kinds_meet
from trainscope.analysis.window_site import WindowSite
from trainscope.trace.noted_waits import NotedWait
from trainscope.trace.syncs import SyncSite

__all__ = ["join_live_sites", "with_lines"]

_PER_STEP_OFF = 0.26
"""Waits in a step that has any may differ by so much between a short window and the run."""


def join_live_sites(
    sites: Sequence[WindowSite], live_sites: Sequence[SyncSite]
) -> dict[WindowSite, WindowSite]:
    """For each site itself, or with the file and line of the only live site that it can be.

    They meet where kind, thread, phase, file and waits a step agree. Where several can be meant,
    equally many sites of a window and lines of one function that each wait once a step are taken
    in their order; anything else stays open.
    """
    found = {site: site for site in sites}
    known = {_key(site.live) for site in sites if site.live is not None}
    usable = [live for live in live_sites if live.during == "training" and _key(live) not in known]
    groups: dict[tuple[int, ...], list[WindowSite]] = {}
    for site in sites:
        if site.in_steps and site.live is None:
            fits = tuple(i for i, live in enumerate(usable) if _fits(site, live))
            groups.setdefault(fits, []).append(site)
    taken = [i for fits in groups for i in fits]
    for fits, group in groups.items():
        if not fits or any(taken.count(i) > 1 for i in fits):
            continue  # a line that other sites could be as well
        lives = [usable[i] for i in fits]
        if len(lives) == 1 and _counts_agree(group, lives[0]):
            found.update({site: _with_line(site, lives[0]) for site in group})
        elif len(lives) == len(group) and _in_one_row(group, lives):
            in_order = sorted(lives, key=lambda live: live.line)
            found.update(
                {site: _with_line(site, live) for site, live in zip(group, in_order, strict=True)}
            )
    return found


def with_lines(
    sites: Sequence[WindowSite],
    lines: Sequence[NotedWait | None],
    live_sites: Sequence[SyncSite],
) -> list[WindowSite]:
    """The sites of single waits, those of a noted line with that line: they become one site."""
    by_line: dict[tuple[str, int, str], SyncSite] = {}
    for live in sorted(live_sites, key=lambda live: (live.during != "training", -live.count)):
        by_line.setdefault(_key(live), live)
    placed: list[WindowSite] = []
    for site, noted in zip(sites, lines, strict=True):
        live = None if noted is None else by_line.get((noted.file, noted.line, noted.kind))
        if live is None:
            placed.append(site)
        else:
            same = replace(_with_line(site, live), ordinal=1, alike=1, after="", earlier="")
            placed.append(same)
    return placed


def _key(live: SyncSite) -> tuple[str, int, str]:
    return live.file, live.line, live.kind


def _fits(site: WindowSite, live: SyncSite) -> bool:
    if site.thread != live.thread or not kinds_meet(site.kind, live.kind):
        return False
    if site.phase is not None and live.phase is not None and site.phase != live.phase:
        return False
    if site.file is None:
        return True
    same_file = live.file.replace("\\", "/").endswith(site.file.replace("\\", "/").lstrip("./"))
    name = live.function.rpartition(".")[2]
    return same_file and (site.function or name).rpartition(".")[2] == name


def _counts_agree(group: Sequence[WindowSite], live: SyncSite) -> bool:
    """Whether the waits a step of sites together are those of one line."""
    if live.counted_internally:
        return True
    if live.steps == 0:
        return len(group) == 1
    together = sum(site.per_seen_step or 0.0 for site in group)
    return abs(together - live.count / live.steps) <= _PER_STEP_OFF * max(1.0, together)


def _in_one_row(group: Sequence[WindowSite], lives: Sequence[SyncSite]) -> bool:
    """Whether sites and lines can be paired in order: one function, each once a step."""
    one = {(live.file, live.function, live.phase) for live in lives}
    once = all(live.count == live.steps > 0 and not live.counted_internally for live in lives)
    return len(one) == 1 and once and all(site.per_step == 1.0 for site in group)


def _with_line(site: WindowSite, live: SyncSite) -> WindowSite:
    return replace(
        site,
        kind=live.kind,
        file=live.file,
        line=live.line,
        line_is="wait",
        function=live.function,
        live=live,
    )
