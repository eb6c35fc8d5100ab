"""Syncs by what they are, not where they stand: code that moves ten lines keeps its key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainscope.analysis.gpu_branches import never_with_gpu
from trainscope.analysis.steps import time_steps
from trainscope.analysis.told_sites import rated_steps, sites_of
from trainscope.trace.paths import relative_path
from trainscope.trace.syncs import SyncSite
from trainscope.trace.trace import Trace

__all__ = ["KeyedSync", "SyncKey", "keyed_syncs"]

IN_THE_LOOP = ("training", "between")
EVERYWHERE = ("setup", "training", "between", "teardown")
"""Where a program has no steps: all of it but compilation and evaluation."""


@dataclass(frozen=True, order=True)
class SyncKey:
    """What tells one sync from another in every version of a program."""

    file: str
    function: str
    source: str
    """The source line, stripped; empty when it could not be read."""
    kind: str


@dataclass(frozen=True)
class KeyedSync:
    """All waits of one key: over its lines, phases, threads and ranks."""

    key: SyncKey
    code: str
    lines: tuple[int, ...]
    count: int
    """On the rank with most of them."""
    steps: int
    """Steps of that rank; 0 where it is in doubt what a step is."""
    blocked_ns_per_step: float | None
    """On that rank; None where no wait was timed, or there is no step."""
    advice: str

    @property
    def per_step(self) -> float | None:
        """Waits per step; None where there is no step."""
        return self.count / self.steps if self.steps else None


def keyed_syncs(trace: Trace) -> tuple[KeyedSync, ...]:
    """The syncs in the loop of any rank, by key, those of most waits per step first.

    What ``allow_sync`` allows is left out, and what a dry run saw in a branch that a machine with
    a GPU does not take. Files below the run's working directory have paths relative to it.
    """
    of_ranks = [each for rank in (trace, *trace.ranks) for each in _of_rank(rank)]
    grouped: dict[SyncKey, list[KeyedSync]] = {}
    for each in of_ranks:
        grouped.setdefault(each.key, []).append(each)
    merged = [_over_ranks(group) for group in grouped.values()]
    return tuple(sorted(merged, key=lambda sync: (-(sync.per_step or sync.count), sync.key)))


def _of_rank(trace: Trace) -> Iterable[KeyedSync]:
    steps = time_steps(trace).count
    wanted = IN_THE_LOOP if steps else EVERYWHERE
    never = never_with_gpu(trace)
    grouped: dict[SyncKey, list[SyncSite]] = {}
    for site in sites_of(trace, steps):
        if site.allowed is None and site.during in wanted and (site.file, site.line) not in never:
            file = relative_path(site.file, trace.info.cwd)
            grouped.setdefault(SyncKey(file, site.function, site.source, site.kind), []).append(
                site
            )
    steps = rated_steps(trace, steps)
    for key, sites in grouped.items():
        yield KeyedSync(
            key=key,
            code=sites[0].code,
            lines=tuple(sorted({site.line for site in sites})),
            count=sum(site.count for site in sites),
            steps=steps,
            blocked_ns_per_step=_blocked_ns(sites, steps),
            advice=sites[0].advice,
        )


def _blocked_ns(sites: list[SyncSite], steps: int) -> float | None:
    """Untimed waits are taken to be as long as the timed ones of their site."""
    if not steps or not all(site.timed for site in sites):
        return None
    return sum(site.blocked_ns_total / site.timed * site.count for site in sites) / steps


def _over_ranks(ranks: list[KeyedSync]) -> KeyedSync:
    most = max(ranks, key=lambda each: (each.per_step or 0, each.count))
    lines = tuple(sorted({line for each in ranks for line in each.lines}))
    return KeyedSync(
        key=most.key,
        code=most.code,
        lines=lines,
        count=most.count,
        steps=most.steps,
        blocked_ns_per_step=most.blocked_ns_per_step,
        advice=most.advice,
    )
