"""The ranks of a text report."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from trainscope.report.model import Report
from trainscope.report.text_parts import hanging, heading, plain, table
from trainscope.report.wording import count_of, duration, number_ranges

__all__ = ["ranks_section"]

MAX_RANKS = 16
MAX_LINES = 10


def ranks_section(report: Report) -> Iterator[RenderableType]:
    """Each rank's median step, the slowest named, and which lines wait on which ranks."""
    ranks = report.ranks
    if ranks is None:
        return
    yield heading("Ranks")
    if ranks.missing:
        yield hanging("", f"nothing was written by rank {number_ranges(ranks.missing)}")
    if ranks.slowest is not None and ranks.slowest_over_median is not None:
        ratio = f"{ranks.slowest_over_median:.2f}x the median of the ranks"
        yield hanging("", f"slowest: rank {ranks.slowest}, {ratio}")
    grid = table("rank", "steps", "median step")
    slowest_first = sorted(ranks.per_rank, key=lambda r: (-(r.step_ms_median or 0), r.rank))
    shown = sorted(slowest_first[:MAX_RANKS], key=lambda r: r.rank)
    for rank in shown:
        median = "?" if rank.step_ms_median is None else duration(rank.step_ms_median)
        grid.add_row(str(rank.rank), f"{rank.steps:,}", median)
    yield grid
    if len(ranks.per_rank) > len(shown):
        yield hanging("", f"and {len(ranks.per_rank) - len(shown):,} faster ones")
    for line in ranks.syncs[:MAX_LINES]:
        wait = (
            "" if line.blocked_ms_total is None else f", {duration(line.blocked_ms_total)} in all"
        )
        ranks_word = "rank" if len(line.ranks) == 1 else "ranks"
        where = f"{line.site}: {line.kind} on {ranks_word} {number_ranges(line.ranks)}"
        yield hanging("", plain(f"{where}, {count_of(line.count, 'time')}{wait}"))
    if len(ranks.syncs) > MAX_LINES:
        yield hanging("", f"and {len(ranks.syncs) - MAX_LINES:,} more lines: --format json")
