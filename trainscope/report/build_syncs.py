"""The syncs of a report: one entry a line, those to look at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainscope.analysis.gpu_branches import never_with_gpu
from trainscope.analysis.syncs import Entry, Line, entries, per_step
from trainscope.analysis.told_sites import rated_steps, sites_of
from trainscope.report.build_what_if import LineKey
from trainscope.report.model import Sync
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.paths import relative_path
from trainscope.trace.syncs import SyncSite
from trainscope.trace.trace import Trace

__all__ = ["as_syncs", "race"]


def as_syncs(
    trace: Trace, lines: Sequence[Line], steps: int, gains_ms: Mapping[LineKey, float]
) -> list[Sync]:
    """Those of ``lines``, the unwanted ones, in that order; then the others, longest wait first."""
    cwd = trace.info.cwd
    never = never_with_gpu(trace)
    first = [entry for line in lines for entry in line.entries]
    known = {entry.site for entry in first}
    sites = sites_of(trace, steps)
    steps = rated_steps(trace, steps)
    others = [entry for entry in entries(sites, steps) if entry.site not in known]
    others.sort(key=lambda entry: _rank(entry.site))
    return [
        _sync(
            entry,
            steps,
            cwd,
            gain_ms=_gain_ms(entry.site, gains_ms),
            no_gpu_branch=(entry.site.file, entry.site.line) in never,
        )
        for entry in (*first, *others)
    ]


def race(site: SyncSite, cwd: str | None) -> Sync:
    """A read of a value whose copy may not have landed."""
    return _sync(Entry(site, () if site.caller is None else (site.caller,)), 0, cwd)


def _rank(site: SyncSite) -> tuple[int, int, str, int]:
    return (-site.blocked_ns_total, -site.count, site.file, site.line)


def _gain_ms(site: SyncSite, gains_ms: Mapping[LineKey, float]) -> float | None:
    if site.during != "training":
        return None
    return gains_ms.get((site.file, site.line, site.kind))


def _sync(
    entry: Entry,
    steps: int,
    cwd: str | None,
    *,
    gain_ms: float | None = None,
    no_gpu_branch: bool = False,
) -> Sync:
    site = entry.site
    return Sync(
        code=site.code,
        kind=site.kind,
        explicit=site.explicit,
        allowed=site.allowed,
        place=f"{relative_path(site.file, cwd)}:{site.line}",
        file=relative_path(site.file, cwd),
        line=site.line,
        function=site.function,
        source=site.source,
        caller=None if site.caller is None else relative_path(site.caller, cwd),
        callers=len(entry.callers),
        via=site.via,
        vias=dict(site.vias),
        phase=site.phase,
        thread=site.thread,
        during=site.during,
        count=site.count,
        per_step=per_step(site, steps),
        steps=min(site.steps, steps) or None,
        timed=site.timed,
        blocked_ms_total=site.blocked_ns_total / NS_PER_MS if site.timed else None,
        blocked_ms_median=(
            None if site.blocked_ns_median is None else site.blocked_ns_median / NS_PER_MS
        ),
        gain_ms_per_step=gain_ms,
        advice=site.advice,
        no_gpu_branch=no_gpu_branch,
    )
