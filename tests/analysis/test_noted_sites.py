"""A wait of a window is at the line that the detector noted at its time."""

from __future__ import annotations

import numpy as np
import pytest

from trainscope.analysis.noted_sites import LiveRecord, TimedWaits, lines_of_waits
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.noted_waits import NotedWait

SHIFT = 7_000_000_000_000
US = 1_000
STEP = 10_000 * US


def steps(numbers: list[int], jitter_us: tuple[int, ...] = (0, 3, -2)) -> WindowSteps:
    starts = [SHIFT + n * STEP + jitter_us[i % 3] * US for i, n in enumerate(numbers)]
    start_ns = np.array(starts, dtype=np.int64)
    period_ns = np.full(len(numbers), -1)
    return WindowSteps(np.array(numbers), start_ns, start_ns + STEP, period_ns, 0, "test")


def noted(line: int, end_us: int, blocked_us: int, kind: str = "item") -> NotedWait:
    blocked_ns = blocked_us * US if blocked_us >= 0 else -1
    return NotedWait(kind, "/p/train.py", line, "main", end_us * US, blocked_ns)


def waits(*of: tuple[int, int], kind: str = "item", thread: str = "main") -> TimedWaits:
    """Waits given by start and end in live microseconds."""
    return TimedWaits(
        np.array([SHIFT + a * US for a, _ in of], dtype=np.int64),
        np.array([SHIFT + b * US for _, b in of], dtype=np.int64),
        [kind] * len(of),
        [thread] * len(of),
    )


def lines(found: list[NotedWait | None]) -> list[int | None]:
    return [None if each is None else each.line for each in found]


NUMBERS = [20, 21, 22]
STARTS = {n: n * STEP for n in NUMBERS}
AT = 20 * 10_000


def placed(of: TimedWaits, *live: NotedWait, starts: dict[int, int] = STARTS) -> list[int | None]:
    return lines(lines_of_waits(of, steps(NUMBERS), LiveRecord(live, starts)))


def test_each_wait_goes_to_the_line_around_it() -> None:
    of = waits((AT + 105, AT + 290), (AT + 310, AT + 390))
    assert placed(of, noted(5, AT + 300, 200), noted(9, AT + 400, 95)) == [5, 9]


def test_lines_a_few_microseconds_long_and_apart_are_told_apart() -> None:
    """Idle `.item()` takes 10 us: closer than the loose slack, so the second pass has to tell."""
    live = [noted(n, AT + 20 * n, 12) for n in range(1, 40)]
    of = waits(*((AT + 20 * n - 9, AT + 20 * n - 4) for n in range(1, 40)))
    assert placed(of, *live) == list(range(1, 40))


def test_a_print_takes_all_waits_inside_it() -> None:
    of = waits(*((AT + 100 + 50 * n, AT + 130 + 50 * n) for n in range(100)))
    assert placed(of, noted(7, AT + 6000, 5950, kind="repr")) == [7] * 100


def test_what_was_not_noted_stays_open() -> None:
    of = waits((AT + 1000, AT + 1500))
    assert placed(of, noted(5, AT + 300, 200), noted(6, AT + 5000, 100)) == [None]
    assert placed(of) == [None]


def test_another_thread_is_another_wait() -> None:
    assert placed(waits((AT + 105, AT + 290), thread="autograd"), noted(5, AT + 300, 200)) == [None]


def test_an_untimed_one_is_told_of_before_it_waits() -> None:
    told = noted(5, AT + 100, -1, kind="size-readback")
    assert placed(waits((AT + 120, AT + 700), kind="nonzero"), told) == [5]
    assert placed(waits((AT + 120, AT + 700), kind="synchronize"), told) == [None]
    assert placed(waits((AT + 2200, AT + 2700), kind="nonzero"), told) == [None]


def test_the_timed_one_around_it_is_preferred() -> None:
    of = waits((AT + 120, AT + 290))
    assert placed(of, noted(4, AT + 100, -1), noted(5, AT + 300, 200)) == [5]


@pytest.mark.parametrize(
    "starts",
    [
        {},
        {90: 90 * STEP},  # no step that both have
        {20: 20 * STEP, 21: 21 * STEP + 500 * US, 22: 22 * STEP},  # clocks that do not tie
    ],
)
def test_without_a_common_clock_nothing_is_said(starts: dict[int, int]) -> None:
    of = waits((AT + 105, AT + 290))
    assert placed(of, noted(5, AT + 300, 200), starts=starts) == [None]
