"""The budgets of a baseline against what a run cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainscope.analysis.ranks import compare_ranks
from trainscope.analysis.sync_keys import KeyedSync
from trainscope.report.gate.baseline import Baseline
from trainscope.report.gate.judgement import Breach
from trainscope.report.model import Report
from trainscope.trace.trace import Trace

__all__ = ["over_budget"]

NS_PER_MS = 1e6


def over_budget(
    trace: Trace, report: Report, syncs: Sequence[KeyedSync], baseline: Baseline
) -> Iterator[Breach]:
    """The budgets that the run exceeds, and those of which it cannot tell."""
    budgets = baseline.budgets
    measured = (
        ("step_ms", budgets.step_ms, _step_ms(trace)),
        ("syncs_per_step", budgets.syncs_per_step, _sum_or_none(s.per_step for s in syncs)),
        (
            "blocked_ms_per_step",
            budgets.blocked_ms_per_step,
            _sum_or_none(
                None if s.blocked_ns_per_step is None else s.blocked_ns_per_step / NS_PER_MS
                for s in syncs
            ),
        ),
        (
            "gpu_idle_ms_per_step",
            budgets.gpu_idle_ms_per_step,
            None if report.idle is None else report.idle.per_step_ms,
        ),
    )
    for name, limit, value in measured:
        if limit is None:
            continue
        if value is None:
            words = f"at most {limit:g} is allowed, and this run cannot tell"
            yield Breach(what="budget", where=name, words=words)
        elif value > limit:
            yield Breach(what="budget", where=name, words=f"{value:.4g}, at most {limit:g} allowed")


def _step_ms(trace: Trace) -> float | None:
    if trace.info.dry_run:
        return None
    medians = [rank.step_ns_median for rank in compare_ranks(trace).per_rank]
    known = [ns for ns in medians if ns is not None]
    return max(known) / NS_PER_MS if known else None


def _sum_or_none(values: Iterator[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None
