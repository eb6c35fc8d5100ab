"""What a row of times says: spread, confidence, and how two rows of the same rounds compare."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainscope.bench.model import Ratio, Spread

__all__ = ["ratio_of_medians", "spread"]

_RESAMPLES = 2000
_TAILS = (2.5, 97.5)


def spread(times_ns: Sequence[float]) -> Spread:
    """The spread of one call's time over the trials; at least one trial."""
    us = np.asarray(times_ns, dtype=np.float64) / 1000
    means = us[_draws(len(us))].mean(axis=1)
    low, high = np.percentile(means, _TAILS)
    p10, median, p90 = np.percentile(us, (10, 50, 90))
    return Spread(
        trials=len(us),
        mean_us=float(us.mean()),
        mean_ci95_us=(float(low), float(high)),
        median_us=float(median),
        p10_us=float(p10),
        p90_us=float(p90),
        min_us=float(us.min()),
    )


def ratio_of_medians(name: str, of: Sequence[float], over: Sequence[float]) -> Ratio:
    """Median of ``of`` over median of ``over``; trial i of both is from the same round.

    Rounds are resampled, not trials: what slows a whole round slows both and cancels.
    """
    ours, theirs = np.asarray(of, dtype=np.float64), np.asarray(over, dtype=np.float64)
    draws = _draws(len(ours))
    ratios = np.median(ours[draws], axis=1) / np.median(theirs[draws], axis=1)
    low, high = np.percentile(ratios, _TAILS)
    value = float(np.median(ours) / np.median(theirs))
    return Ratio(to=name, value=value, low=float(low), high=float(high))


def _draws(trials: int) -> NDArray[np.int64]:
    """Rows of trial numbers drawn with replacement; the same ones for the same count."""
    return np.random.default_rng(0).integers(0, trials, size=(_RESAMPLES, trials))
