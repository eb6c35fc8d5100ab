"""The spread of times, and the ratio of two functions from the same rounds."""

from __future__ import annotations

import numpy as np
import pytest

from trainscope.bench.spread import ratio_of_medians, spread
from trainscope.bench.time_text import time_text


def test_the_spread_of_one_to_a_hundred_microseconds() -> None:
    found = spread([1000.0 * each for each in range(1, 102)])
    assert (found.trials, found.mean_us, found.median_us) == (101, 51.0, 51.0)
    assert (found.p10_us, found.p90_us, found.min_us) == (11.0, 91.0, 1.0)


def test_the_interval_of_the_mean_is_that_of_the_normal_theory() -> None:
    times = np.random.default_rng(1).normal(50_000, 5_000, 400)
    low, high = spread(list(times)).mean_ci95_us
    half = 1.96 * times.std(ddof=1) / np.sqrt(400) / 1000
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)
    assert (high + low) / 2 == pytest.approx(times.mean() / 1000, rel=0.002)


def test_equal_times_have_no_width() -> None:
    assert spread([2000.0] * 20).mean_ci95_us == (2.0, 2.0)


def test_what_slows_a_whole_round_does_not_widen_the_ratio() -> None:
    drift = np.random.default_rng(2).uniform(1, 3, 200)
    found = ratio_of_medians("base", list(20_000 * drift), list(10_000 * drift))
    assert (found.to, found.value, found.low, found.high) == ("base", 2.0, 2.0, 2.0)


def test_the_interval_of_a_ratio_holds_the_truth() -> None:
    noise = np.random.default_rng(3).normal(1, 0.05, (2, 300))
    found = ratio_of_medians("base", list(12_000 * noise[0]), list(10_000 * noise[1]))
    assert found.low < 1.2 < found.high
    assert found.high - found.low < 0.05


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.0123, "12.3 ns"),
        (0.5, "500 ns"),
        (1.0, "1.00 us"),
        (999.4, "999 us"),
        (999.6, "1.00 ms"),
        (45_678.0, "45.7 ms"),
        (2_500_000.0, "2.50 s"),
    ],
)
def test_times_keep_three_digits(us: float, text: str) -> None:
    assert time_text(us) == text
