"""The ranks of a run beside each other: who is slow, and which lines wait on which ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainscope.analysis.captured_steps import captured_step_ns
from trainscope.analysis.examined import best_window
from trainscope.analysis.steps import time_steps
from trainscope.analysis.window_steps import find_steps
from trainscope.trace.syncs import SyncSite
from trainscope.trace.trace import Trace

__all__ = ["RankLine", "RankTimes", "Ranks", "compare_ranks"]


@dataclass(frozen=True)
class RankTimes:
    """One rank's steps; the median is over the measured ones, None where there is none."""

    rank: int
    steps: int
    step_ns_median: float | None


@dataclass(frozen=True)
class RankLine:
    """One line that waits in one way, over all ranks."""

    file: str
    line: int
    kind: str
    ranks: tuple[int, ...]
    count: int
    blocked_ns_total: int | None


@dataclass(frozen=True)
class Ranks:
    """All ranks of a run; ``slowest`` is None where fewer than two ranks have steps."""

    missing: tuple[int, ...]
    per_rank: tuple[RankTimes, ...]
    slowest: int | None
    slowest_over_median: float | None
    lines: tuple[RankLine, ...]


def compare_ranks(trace: Trace) -> Ranks:
    """Compare ``trace`` with ``trace.ranks``; of equally slow ranks the lowest is named."""
    traces = (trace, *trace.ranks)
    per_rank = tuple(_times(each) for each in traces)
    known = [(r.step_ns_median, r.rank) for r in per_rank if r.step_ns_median is not None]
    slowest = slowest_over_median = None
    if len(known) > 1:
        longest_ns, slowest = max(known, key=lambda pair: (pair[0], -pair[1]))
        middle_ns = float(np.median([ns for ns, _ in known]))
        slowest_over_median = longest_ns / middle_ns if middle_ns else None
    return Ranks(
        missing=trace.missing_ranks,
        per_rank=per_rank,
        slowest=slowest,
        slowest_over_median=slowest_over_median,
        lines=_lines(traces),
    )


def _times(trace: Trace) -> RankTimes:
    """From the live recording; of a bare trace from the window with most GPU work."""
    if trace.info.source != "run" and trace.windows:
        window = best_window(trace.windows) or trace.windows[0]
        found = find_steps(window)
        step_ns = captured_step_ns(window, found)
        return RankTimes(
            trace.rank, len(found), float(np.median(step_ns)) if len(step_ns) else None
        )
    steps = time_steps(trace)
    median_ns = float(np.median(steps.duration_ns)) if len(steps.duration_ns) else None
    return RankTimes(trace.rank, steps.count, median_ns)


def _lines(traces: tuple[Trace, ...]) -> tuple[RankLine, ...]:
    """Longest total wait first, then most frequent."""
    grouped: dict[tuple[str, int, str], list[tuple[int, SyncSite]]] = {}
    for trace in traces:
        for site in trace.syncs:
            grouped.setdefault((site.file, site.line, site.kind), []).append((trace.rank, site))
    lines = [
        RankLine(
            *key,
            ranks=tuple(sorted({rank for rank, _ in found})),
            count=sum(site.count for _, site in found),
            blocked_ns_total=(
                sum(site.blocked_ns_total for _, site in found)
                if any(site.timed for _, site in found)
                else None
            ),
        )
        for key, found in grouped.items()
    ]
    order = sorted(lines, key=lambda r: (-(r.blocked_ns_total or 0), -r.count, r.file, r.line))
    return tuple(order)
