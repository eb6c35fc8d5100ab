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
        {20: 20 * STEP, 21: 21 * STEP + 500 * US, 22: 22 * STEP - 500 * US},  # that do not tie
    ],
)
def test_without_a_common_clock_nothing_is_said(starts: dict[int, int]) -> None:
    of = waits((AT + 105, AT + 290))
    assert placed(of, noted(5, AT + 300, 200), starts=starts) == [None]


def test_a_step_that_was_moved_back_does_not_part_the_clocks() -> None:
    """To the fetch before its first micro-batch, say; the window has it as it was begun."""
    of = waits((AT + 105, AT + 290))
    starts = {**STARTS, 21: 21 * STEP - 1900 * US}
    assert placed(of, noted(5, AT + 300, 200), starts=starts) == [5]


def test_what_a_probe_takes_behind_a_wait_may_vary() -> None:
    """Under a profiler the first of several calls ends later than the others."""
    tails_us = (135, 127, 30, 99, 28, 64, 110, 45)
    of = waits(*((AT + 1000 * n + 10, AT + 1000 * n + 60) for n in range(8)))
    live = [noted(n, AT + 1000 * n + 60 + tail, 65 + tail) for n, tail in enumerate(tails_us)]
    assert placed(of, *live) == list(range(8))


@pytest.mark.parametrize("off_us", [-60, -20, 20, 60])
def test_clocks_that_are_off_are_set_by_what_sticks_out(off_us: int) -> None:
    spans = [(AT + 300 * n + off_us, AT + 300 * n + 40 + off_us) for n in range(9)]
    live = [noted(n, AT + 300 * n + 44, 48) for n in range(9)]
    # one that nobody noted, just before the third line's
    stray = (AT + 600 - 95 + off_us, AT + 600 - 90 + off_us)
    assert placed(waits(*spans[:2], stray, *spans[2:]), *live) == [0, 1, None, *range(2, 9)]


def test_where_every_step_was_moved_back_their_ends_tie_the_clocks() -> None:
    """Each to the fetch of its batches, by another time."""
    live = [noted(5, AT + 300, 200)]
    starts = {n: n * STEP - (n - 19) * 2_000 * US for n in NUMBERS}
    ends = {n: (n + 1) * STEP for n in NUMBERS}
    of = waits((AT + 105, AT + 290))
    for given, line in ((ends, 5), ({}, None), (starts, None)):
        assert lines(lines_of_waits(of, steps(NUMBERS), LiveRecord(live, starts, given))) == [line]


def test_calls_that_are_stamped_by_another_clock_are_found_by_all_of_them() -> None:
    """CUDA's calls were 130 us off the CPU's ranges in windows of an H200."""
    lengths = (60, 25, 110, 300, 45, 80)
    spans = [(AT + 700 * n - 130, AT + 700 * n - 130 + long) for n, long in enumerate(lengths)]
    live = [noted(n, AT + 700 * n + long + 5, long + 10) for n, long in enumerate(lengths)]
    assert placed(waits(*spans), *live) == list(range(6))
    assert placed(waits(*spans[:2]), *live) == [None, None], "of two it may be chance"


def test_a_wait_that_stands_out_is_not_given_a_line_that_another_has() -> None:
    spans = [(AT + 500 * n, AT + 500 * n + 50) for n in range(5)]
    live = [noted(n, AT + 500 * n + 55, 60) for n in range(5)]
    drifted = [(spans[0][0] - 70, spans[0][1] - 70), *spans[1:]]
    assert placed(waits(*drifted), *live) == [0, 1, 2, 3, 4]
    stray = (spans[1][0] - 70, spans[1][1] - 70)
    assert placed(waits(spans[0], stray, *spans[1:]), *live) == [0, None, 1, 2, 3, 4]
