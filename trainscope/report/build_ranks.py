"""The ranks of a report beside each other."""

from __future__ import annotations

from trainscope.analysis.ranks import compare_ranks
from trainscope.report.model import RanksReport, RankSteps, RankSync
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.paths import relative_path
from trainscope.trace.trace import Trace

__all__ = ["as_ranks"]


def as_ranks(trace: Trace) -> RanksReport | None:
    """All ranks of a trace; None where it has but one."""
    if not trace.ranks and not trace.missing_ranks:
        return None
    ranks = compare_ranks(trace)
    return RanksReport(
        missing=list(ranks.missing),
        per_rank=[
            RankSteps(
                rank=rank.rank,
                steps=rank.steps,
                step_ms_median=(
                    None if rank.step_ns_median is None else rank.step_ns_median / NS_PER_MS
                ),
            )
            for rank in ranks.per_rank
        ],
        slowest=ranks.slowest,
        slowest_over_median=ranks.slowest_over_median,
        syncs=[
            RankSync(
                site=f"{relative_path(line.file, trace.info.cwd)}:{line.line}",
                kind=line.kind,
                ranks=list(line.ranks),
                count=line.count,
                blocked_ms_total=(
                    None if line.blocked_ns_total is None else line.blocked_ns_total / NS_PER_MS
                ),
            )
            for line in ranks.lines
        ],
    )
