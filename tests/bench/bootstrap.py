"""How far a median can be trusted: the medians of what might have been measured instead."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

__all__ = ["bounds_of_median"]

DRAWS = 10_000


def bounds_of_median(values: Sequence[float], *shares: float) -> list[float]:
    """The median's bootstrap quantile at each share: at 0.95 its 95 % upper bound."""
    chance = random.Random(0)
    drawn = (chance.choices(values, k=len(values)) for _ in range(DRAWS))
    medians = sorted(map(statistics.median, drawn))
    return [medians[min(int(share * DRAWS), DRAWS - 1)] for share in shares]
