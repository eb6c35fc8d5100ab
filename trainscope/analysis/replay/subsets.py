"""Which syncs must go together: the smallest set that keeps most of what removing all gains.

Gains do not add: three syncs alone may gain nothing and together a third. So all are removed first,
and put back one at a time, the one that costs least.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

__all__ = ["smallest_set"]

KEPT_SHARE = 0.9
"""Of the gain of removing all."""


def smallest_set(
    places: Collection[int], baseline_ns: float, step_ns: Callable[[frozenset[int]], float]
) -> frozenset[int]:
    """The set, by ``step_ns`` of the step without some; all of ``places`` where none can stay."""
    removed = frozenset(places)
    full_gain_ns = baseline_ns - step_ns(removed)
    if full_gain_ns <= 0:
        return frozenset()
    while len(removed) > 1:
        trials = {place: step_ns(removed - {place}) for place in sorted(removed)}
        cheapest = min(trials, key=lambda place: trials[place])
        if baseline_ns - trials[cheapest] < KEPT_SHARE * full_gain_ns:
            break
        removed -= {cheapest}
    return removed
