"""The interval of a change of medians: found by bisection, and the same as if put together."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from trainscope.analysis import change
from trainscope.analysis.change import change_of_medians

RANDOM = np.random.default_rng(7)


def put_together(values: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float64]:
    """The medians of the same resamples, each of them made as an array."""
    length = max(len(values) // change.BLOCKS, 1)
    blocks = np.array_split(values, min(change.BLOCKS, len(values) // length))
    drawn = random.integers(0, len(blocks), (change.RESAMPLES, len(blocks)))
    return np.array([np.median(np.concatenate([blocks[i] for i in row])) for row in drawn])


@pytest.mark.parametrize("count", [20, 21, 39, 40, 57, 480, 1003])
@pytest.mark.parametrize(
    "values",
    [
        lambda n: RANDOM.integers(0, 5, n),  # most of them alike
        lambda n: RANDOM.integers(0, 10**9, n),
        lambda n: np.zeros(n),
        lambda n: np.arange(n) * 1000,
        lambda n: np.where(np.arange(n) % 2, 2**52, 1),
    ],
)
def test_each_median_is_that_of_its_blocks_put_together(count: int, values: object) -> None:
    series = values(count).astype(np.int64)  # type: ignore[operator]
    found = change._medians(series, np.random.default_rng(0))
    assert np.array_equal(found, put_together(series, np.random.default_rng(0)))


def test_times_at_the_end_of_what_64_bits_hold() -> None:
    longest = np.full(50, 2**63 - 1, dtype=np.int64)
    found = change_of_medians(longest, longest)
    assert found is not None
    assert (found.ratio, found.low, found.high) == (1.0, 1.0, 1.0)


def test_a_million_steps_take_seconds() -> None:
    steps = RANDOM.normal(20e6, 1e6, 1_000_000).astype(np.int64)
    began = time.perf_counter()
    found = change_of_medians(steps, steps * 2)
    assert time.perf_counter() - began < 5
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 1.99 < found.low < 2 < found.high < 2.01
