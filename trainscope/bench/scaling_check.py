"""``scaling``: whether time grows as the work does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import torch

from trainscope.bench.arguments import check_amounts, check_callable, is_number
from trainscope.bench.device import timer_for
from trainscope.bench.environment import environment
from trainscope.bench.measure import effort
from trainscope.bench.model import Cache, Scaling, ScalingPoint
from trainscope.bench.outcome import times_of
from trainscope.bench.subject import Subject, calling, first_call, refuse_later
from trainscope.bench.time_text import time_text
from trainscope.bench.timers import Timer
from trainscope.bench.trials import take
from trainscope.errors import ConfigError

__all__ = ["judged", "scaling"]

_TOLERANCE = 0.15


def scaling(
    make: Callable[[Any], Callable[[], Any]],
    sizes: Sequence[float] = (1, 2, 3, 4, 5),
    *,
    work: Callable[[float], float] = float,
    cache: Cache | None = None,
    trials: int | None = None,
    seconds: float = 0.5,
    device: str | torch.device | None = None,
    timer: Timer | None = None,
) -> Scaling:
    """Time ``make(size)()`` for each size, in turn, and say whether time grows as the work does.

    make: returns a call without arguments that does the work of that size.
    work: the work of a size, the size itself unless given; a matmul's is its cube.
    The others are those of ``benchmark``.

    Raises:
        BenchmarkError: ``make`` or what it made raised, or the call returned a generator.
        ConfigError: fewer than two sizes, or sizes whose work does not grow.
    """
    wanted = effort(trials, seconds)
    check_amounts(None, None, None, cache)
    sizes, works = _works(sizes, work)
    subjects = []
    for size in sizes:
        with calling(f"make({size:g})"):
            call = make(size)
        check_callable(f"make({size:g})", call)
        subjects.append(Subject(f"make({size:g})()", call))
    with calling(subjects[0].name):
        output, _ = first_call(subjects[0])
    refuse_later(subjects[0].name, output)
    chosen = timer or timer_for(cache, device, (), output)
    taken = take(subjects, chosen, wanted)
    medians_us = [median(times_of(each)) / 1000 for each in taken]
    linear, fixed_us, verdict = judged(works, medians_us)
    return Scaling(
        linear=linear,
        verdict=verdict,
        fixed_us=fixed_us,
        points=tuple(
            ScalingPoint(size=size, work=w / works[0], time=us / medians_us[0], median_us=us)
            for size, w, us in zip(sizes, works, medians_us, strict=True)
        ),
        environment=environment(chosen.device),
    )


def _works(
    sizes: Sequence[float], work: Callable[[float], float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    try:
        sizes = tuple(sizes)
    except TypeError:
        raise ConfigError(
            f"sizes={sizes!r:.80} is not allowed; pass at least two numbers"
        ) from None
    if not all(map(is_number, sizes)):
        raise ConfigError(f"sizes={sizes!r:.80} are not all numbers; pass at least two numbers")
    works = tuple(work(size) for size in sizes)
    if (
        len(sizes) < 2
        or not all(is_number(each) and 0 < each < math.inf for each in works)
        or any(b <= a for a, b in pairwise(works))
    ):
        raise ConfigError(
            f"sizes={sizes} have work {works}; pass at least two, in the order of growing work"
        )
    return sizes, works


def judged(works: Sequence[float], medians_us: Sequence[float]) -> tuple[bool, float, str]:
    """Whether times are as the work within 15 %, the time at no work, and a sentence."""
    by_work = np.asarray(works, dtype=np.float64) / works[0]
    by_time = np.asarray(medians_us, dtype=np.float64) / medians_us[0]
    slope, fixed = np.polyfit(by_work, np.asarray(medians_us, dtype=np.float64), 1)
    fixed_us = min(max(float(fixed), 0.0), float(medians_us[0]))
    off = by_time / by_work - 1
    worst = int(np.abs(off).argmax())
    told = f"{by_work[worst]:.3g} times the work takes {by_time[worst]:.3g} times as long"
    if abs(off[worst]) <= _TOLERANCE:
        return True, fixed_us, f"time grows as the work does: {told}"
    if off[worst] > 0:
        why = "it falls out of a cache, the clocks drop, or something waits"
        return False, fixed_us, f"time grows faster than the work: {told}; {why}"
    if slope > 0 and fixed_us > 0:
        smallest = time_text(medians_us[0])
        why = f"{time_text(fixed_us)} of the smallest's {smallest} go to what does not grow"
    else:
        why = "the larger sizes do not do the work that they should"
    return False, fixed_us, f"time grows slower than the work: {told}; {why}"
