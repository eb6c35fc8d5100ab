"""Syncs: which lines wait, how often and how long in a step, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainscope.trace.syncs import SyncSite
from trainscope.trace.trace import Trace

__all__ = ["Line", "per_step", "unwanted_lines", "waiting_lines"]


@dataclass(frozen=True)
class Line:
    """One line of the user's code that waits in one way, over its phases and threads."""

    sites: tuple[SyncSite, ...]
    """Most frequent first; all of one file, line and kind."""
    count: int
    per_step: float | None
    blocked_ns_total: int | None
    """Over the timed waits; None where none was timed."""
    blocked_ns_median: float | None
    """Of one wait."""
    blocked_ns_per_step: float | None
    """Median wait times waits per step."""


def per_step(site: SyncSite, steps: int) -> float | None:
    """Waits of a training site per step; None for others, and where there is no step."""
    return site.count / steps if steps and site.during == "training" else None


def waiting_lines(sites: Iterable[SyncSite], steps: int) -> tuple[Line, ...]:
    """The sites put together by file, line and kind; longest wait per step first, then count."""
    grouped: dict[tuple[str, int, str], list[SyncSite]] = {}
    for site in sites:
        grouped.setdefault((site.file, site.line, site.kind), []).append(site)
    lines = [_line(group, steps) for group in grouped.values()]
    return tuple(sorted(lines, key=_rank))


def unwanted_lines(trace: Trace, steps: int) -> tuple[Line, ...]:
    """Lines that wait in training without having been asked to: the ones to look at.

    Where there is no step, the whole program counts, but for compilation and evaluation.
    """
    wanted = ("training",) if steps else ("setup", "training", "teardown")
    sites = (
        site
        for site in trace.syncs
        if not site.explicit and site.allowed is None and site.during in wanted
    )
    return waiting_lines(sites, steps)


def _line(group: list[SyncSite], steps: int) -> Line:
    sites = tuple(sorted(group, key=lambda site: (-site.count, site.phase or "", site.thread)))
    count = sum(site.count for site in sites)
    frequencies = [f for site in sites if (f := per_step(site, steps)) is not None]
    timed = [site for site in sites if site.timed and site.blocked_ns_median is not None]
    waits = sum(site.timed for site in timed)
    median_ns = None
    if timed:
        # over several sites the medians weighted by their waits: the single times are not kept
        median_ns = sum(s.timed * (s.blocked_ns_median or 0) for s in timed) / waits
    frequency = sum(frequencies) if frequencies else None
    return Line(
        sites=sites,
        count=count,
        per_step=frequency,
        blocked_ns_total=sum(site.blocked_ns_total for site in timed) if timed else None,
        blocked_ns_median=median_ns,
        blocked_ns_per_step=(
            None if median_ns is None or frequency is None else median_ns * frequency
        ),
    )


def _rank(line: Line) -> tuple[float, int, str, int]:
    first = line.sites[0]
    blocked = line.blocked_ns_per_step
    if blocked is None:
        blocked = line.blocked_ns_total or 0
    return (-blocked, -line.count, first.file, first.line)
