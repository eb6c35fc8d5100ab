"""What the hooks add to a call, with bounds ten times what was measured on an idle machine."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from torch import nn

from trainscope.record.hooks import Hooks
from trainscope.record.recorder import Recorder


class Nothing(nn.Module):
    def forward(self) -> None:
        return None


def cost_ns(function: Callable[[], object], calls: int = 2000, rounds: int = 15) -> float:
    """Of one call, in nanoseconds; the best round, as others only add noise."""
    best = float("inf")
    for _ in range(rounds):
        began_ns = perf_counter_ns()
        for _ in range(calls):
            function()
        best = min(best, (perf_counter_ns() - began_ns) / calls)
    return best


def test_a_call_costs_little_and_a_stranger_s_less() -> None:
    watched, stranger, recorder = Nothing(), Nothing(), Recorder()
    bare = cost_ns(watched)
    a_range = cost_ns(lambda: recorder.close(recorder.open("forward")))
    hooks = Hooks(recorder)
    hooks.add_model(watched)
    try:
        added = cost_ns(watched) - bare - a_range
        added_to_stranger = cost_ns(stranger) - bare
    finally:
        hooks.remove()
    print(f"a wrapped call +{added:.0f} ns beyond its range, a stranger's +{added_to_stranger:.0f}")
    assert added < 15_000  # measured: 1,200
    assert added_to_stranger < 3_000  # measured: 270
    assert abs(cost_ns(watched) - bare) < 3_000, "and nothing once removed"
