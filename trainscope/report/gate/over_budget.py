"""The budgets of a baseline against what a run cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainscope.analysis.examined import best_window, examine
from trainscope.analysis.ranks import compare_ranks
from trainscope.analysis.sync_keys import KeyedSync
from trainscope.report.build_gpu import as_gpu
from trainscope.report.gate.baseline import Baseline
from trainscope.report.gate.judgement import Breach
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.trace import Trace

__all__ = ["over_budget"]


def over_budget(trace: Trace, syncs: Sequence[KeyedSync], baseline: Baseline) -> Iterator[Breach]:
    """The budgets that the run exceeds, and those of which it cannot tell.

    A cost is worked out only where there is a budget for it: a window takes a while to examine.
    """
    budgets = baseline.budgets
    costs: tuple[tuple[str, float | None, Callable[[], float | None]], ...] = (
        ("step_ms", budgets.step_ms, lambda: _step_ms(trace)),
        ("syncs_per_step", budgets.syncs_per_step, lambda: _sum_or_none(s.per_step for s in syncs)),
        ("blocked_ms_per_step", budgets.blocked_ms_per_step, lambda: _blocked_ms(syncs)),
        ("gpu_idle_ms_per_step", budgets.gpu_idle_ms_per_step, lambda: _gpu_idle_ms(trace)),
    )
    for name, limit, cost in costs:
        if limit is None:
            continue
        value = cost()
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


def _blocked_ms(syncs: Sequence[KeyedSync]) -> float | None:
    blocked_ns = _sum_or_none(sync.blocked_ns_per_step for sync in syncs)
    return None if blocked_ns is None else blocked_ns / NS_PER_MS


def _gpu_idle_ms(trace: Trace) -> float | None:
    """As in the report's ``idle``, of the window with most GPU work."""
    window = best_window(trace.windows)
    if window is None:
        return None
    _, idle = as_gpu(examine(window, trace.syncs))
    return idle.per_step_ms


def _sum_or_none(values: Iterator[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None
