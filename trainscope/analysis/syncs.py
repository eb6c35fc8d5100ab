"""Syncs: which lines wait, how often and how long in a step, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainscope.analysis.gpu_branches import Place, never_with_gpu
from trainscope.analysis.told_sites import rated_steps, sites_of
from trainscope.trace.syncs import SyncSite
from trainscope.trace.trace import Trace

__all__ = ["Entry", "Line", "entries", "per_step", "unwanted_lines", "waiting_lines"]


@dataclass(frozen=True)
class Entry:
    """Sites that differ in nothing but their phase and caller: one line of a report."""

    site: SyncSite
    """Counts and blocked times of all; phase, caller and words of the most frequent one."""
    callers: tuple[str, ...]
    """Their distinct callers, most frequent first."""


@dataclass(frozen=True)
class Line:
    """One line of the user's code that waits in one way, over its phases and threads."""

    entries: tuple[Entry, ...]
    """Most frequent first; all of one file, line and kind."""
    count: int
    per_step: float | None
    steps: int
    """Distinct steps it was seen in; 0 where that is not known."""
    blocked_ns_total: int | None
    """Over the timed waits; None where none was timed."""
    blocked_ns_median: float | None
    """Of one wait."""
    blocked_ns_per_step: float | None
    """Median wait times waits per step."""

    @property
    def site(self) -> SyncSite:
        """The most frequent entry's."""
        return self.entries[0].site

    @property
    def place(self) -> Place:
        """File and line; several kinds may wait at one place."""
        return self.site.file, self.site.line


def per_step(site: SyncSite, steps: int) -> float | None:
    """Waits of a training site per step; None for others, and where there is no step."""
    return site.count / steps if steps and site.during == "training" else None


def entries(sites: Iterable[SyncSite], steps: int) -> tuple[Entry, ...]:
    """The sites put together where they differ in phase, caller and function only."""
    grouped: dict[tuple[object, ...], list[SyncSite]] = {}
    for site in sites:
        asked = (site.explicit, site.allowed)
        key = (site.file, site.line, site.kind, site.thread, site.during, *asked)
        grouped.setdefault(key, []).append(site)
    return tuple(_entry(group, steps) for group in grouped.values())


def waiting_lines(sites: Iterable[SyncSite], steps: int) -> tuple[Line, ...]:
    """The sites put together by file, line and kind; longest wait per step first.

    Of equal waits, and where none is known, those of the most steps come first, then the count.
    """
    grouped: dict[tuple[str, int, str], list[Entry]] = {}
    for entry in entries(sites, steps):
        site = entry.site
        grouped.setdefault((site.file, site.line, site.kind), []).append(entry)
    lines = [_line(group, steps) for group in grouped.values()]
    return tuple(sorted(lines, key=lambda line: _rank(line, steps)))


def unwanted_lines(trace: Trace, steps: int) -> tuple[Line, ...]:
    """Lines that wait in training without having been asked to: the ones to look at.

    Where there is no step, the whole program counts, but for compilation and evaluation. What a
    dry run saw in a branch that a machine with a GPU does not take is left out.
    """
    wanted = ("training",) if steps else ("setup", "training", "between", "teardown")
    never = never_with_gpu(trace)
    sites = (
        site
        for site in sites_of(trace, steps)
        if not site.explicit
        and site.allowed is None
        and site.during in wanted
        and (site.file, site.line) not in never
    )
    return waiting_lines(sites, rated_steps(trace, steps))


def _entry(group: list[SyncSite], steps: int) -> Entry:
    group.sort(key=lambda site: (-site.count, site.phase is None, site.phase or ""))
    first = group[0]
    if len(group) == 1:
        return Entry(first, () if first.caller is None else (first.caller,))
    median_ns = _median_ns(group)
    timed = [site for site in group if site.timed]
    whole = replace(
        first,
        count=sum(site.count for site in group),
        counted_internally=any(site.counted_internally for site in group),
        timed=sum(site.timed for site in timed),
        blocked_ns_total=sum(site.blocked_ns_total for site in timed),
        blocked_ns_median=None if median_ns is None else round(median_ns),
        steps=_steps(group, steps),
        vias=_vias(group),
    )
    return Entry(whole, tuple(dict.fromkeys(site.caller for site in group if site.caller)))


def _vias(group: list[SyncSite]) -> tuple[tuple[str, int], ...]:
    """The library frames of all, each with its waits; empty where one made them all."""
    counts = Counter[str]()
    for site in group:
        for via, count in site.vias or ((site.via, site.count),):
            if via is not None:
                counts[via] += count
    alone = len(counts) < 2 and counts.total() == sum(site.count for site in group)
    return () if alone or not counts else tuple(counts.most_common())


def _line(group: list[Entry], steps: int) -> Line:
    group.sort(key=lambda entry: (-entry.site.count, entry.site.thread, entry.site.during))
    sites = [entry.site for entry in group]
    frequencies = [f for site in sites if (f := per_step(site, steps)) is not None]
    frequency = sum(frequencies) if frequencies else None
    median_ns = _median_ns(sites)
    timed = [site for site in sites if site.timed]
    return Line(
        entries=tuple(group),
        count=sum(site.count for site in sites),
        per_step=frequency,
        steps=_steps(sites, steps),
        blocked_ns_total=sum(site.blocked_ns_total for site in timed) if timed else None,
        blocked_ns_median=median_ns,
        blocked_ns_per_step=(
            None if median_ns is None or frequency is None else median_ns * frequency
        ),
    )


def _median_ns(sites: Sequence[SyncSite]) -> float | None:
    """The medians weighted by their waits: the single times are not kept."""
    timed = [(s.timed, s.blocked_ns_median) for s in sites if s.timed]
    known = [(waits, ns) for waits, ns in timed if ns is not None]
    if not known:
        return None
    return sum(waits * ns for waits, ns in known) / sum(waits for waits, _ in known)


def _steps(sites: Sequence[SyncSite], steps: int) -> int:
    """In how many steps any of the sites was seen; 0 where their numbers leave it open."""
    seen = [site.steps for site in sites]
    if not all(seen):
        return 0
    at_least, at_most = min(max(seen), steps), min(sum(seen), steps)
    return at_least if at_least == at_most else 0


def _rank(line: Line, steps: int) -> tuple[float, int, int, str, int]:
    blocked = line.blocked_ns_per_step
    if blocked is None:
        blocked = line.blocked_ns_total or 0
    seen = line.steps or min(line.count, steps)
    return (-blocked, -seen, -line.count, *line.place)
