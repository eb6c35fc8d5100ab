"""How much one series of times differs from another, and how far that can be told from noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Change", "change_of_medians"]

RESAMPLES = 1000
LEAST_VALUES = 20
"""Below this many values on either side no interval is given: a median of few says little."""
BLOCKS = 20
"""Runs wander: values beside one another are alike, and are drawn in blocks of a 20th of a run."""


@dataclass(frozen=True)
class Change:
    """The ratio of two medians, new over old."""

    ratio: float
    low: float | None
    """2.5th percentile of the ratio over block-bootstrap resamples; None where values are few."""
    high: float | None
    """97.5th percentile."""

    @property
    def is_told(self) -> bool:
        """Whether the interval leaves "no change" out."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def change_of_medians(old: NDArray[np.int64], new: NDArray[np.int64]) -> Change | None:
    """Compare two series in the order in which they were measured; None where a median is 0.

    The interval holds the noise within each run, slow wandering included (blocks are resampled,
    not single values), and nothing of what differs between two runs of one program.
    """
    if not len(old) or not len(new):
        return None
    before, after = float(np.median(old)), float(np.median(new))
    if before <= 0 or after <= 0:
        return None
    if min(len(old), len(new)) < LEAST_VALUES:
        return Change(after / before, None, None)
    random = np.random.default_rng(0)  # the same answer each time
    ratios = _medians(new, random) / np.maximum(_medians(old, random), 1.0)
    low, high = np.percentile(ratios, (2.5, 97.5))
    return Change(after / before, float(low), float(high))


def _medians(values: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float64]:
    """Medians of resamples made of whole blocks of the series.

    No resample is put together: a median is found by bisection, as the value that half of the
    drawn blocks' values do not exceed, so that a million steps take a second.
    """
    length = max(len(values) // BLOCKS, 1)
    blocks = np.array_split(values, min(BLOCKS, len(values) // length))
    drawn = random.integers(0, len(blocks), (RESAMPLES, len(blocks)))
    times = (drawn[:, :, None] == np.arange(len(blocks))).sum(axis=1)
    count = times @ np.array([len(block) for block in blocks])
    ordered = [np.sort(block) for block in blocks]
    low, high = (_of_rank(ordered, times, rank) for rank in ((count - 1) // 2, count // 2))
    return low / 2 + high / 2


def _of_rank(
    ordered: list[NDArray[np.int64]], times: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """In each resample the value that as many as ``rank`` stand before, in order of size."""
    # a median of blocks lies between the least and the greatest of their medians
    below = np.full(len(rank), min(block[(len(block) - 1) // 2] for block in ordered) - 1)
    found = np.full(len(rank), max(block[len(block) // 2] for block in ordered))
    while (found - below > 1).any():
        middle = below + (found - below) // 2
        before = np.zeros(len(rank), dtype=np.int64)
        for block, many in zip(ordered, times.T, strict=True):
            before += many * np.searchsorted(block, middle, side="right")
        reached = before > rank
        found = np.where(reached, middle, found)
        below = np.where(reached, below, middle)
    return found
