from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from made_runs import MS, NAMES, step_rows, trace

from trainscope.analysis.steps import MAX_PHASES, ranges_per_step, time_phases, time_steps
from trainscope.trace.captures import CaptureState, CaptureWindow
from trainscope.trace.ranges import Ranges


def captured(first: int, last: int) -> CaptureState:
    return CaptureState(
        (CaptureWindow(first, first, last, None, "torch.profiler", True, 0, 0),), True
    )


@pytest.mark.parametrize(("steps", "left_out"), [(0, 0), (1, 0), (4, 0), (5, 1), (6, 1)])
def test_the_first_of_five_steps_and_more_is_warm_up(steps: int, left_out: int) -> None:
    times = time_steps(trace(step_rows(steps)))
    assert (times.count, times.left_out_warm_up) == (steps, left_out)
    assert times.step.tolist() == list(range(left_out, steps))
    assert set(times.duration_ns.tolist()) <= {20_400_000}


def test_steps_of_a_window_are_left_out_unless_none_would_be_left() -> None:
    times = time_steps(trace(step_rows(10), captures=captured(4, 6)))
    assert times.step.tolist() == [1, 2, 3, 7, 8, 9]
    assert (times.left_out_warm_up, times.left_out_captured) == (1, 3)
    times = time_steps(trace(step_rows(3), captures=captured(0, 2)))
    assert (times.step.tolist(), times.left_out_captured) == ([0, 1, 2], 0)


def test_steps_after_a_window_whose_profiler_stayed_are_left_out_if_enough_came_before() -> None:
    def stayed(first: int, last: int) -> CaptureState:
        window = replace(captured(first, last).windows[0], stays="TEARDOWN_CUPTI is '0'")
        return CaptureState((window,), True)

    times = time_steps(trace(step_rows(30), captures=stayed(11, 13)))
    assert times.step.tolist() == list(range(1, 11))
    left_out = (times.left_out_warm_up, times.left_out_captured, times.left_out_slowed)
    assert left_out == (1, 3, 16)
    times = time_steps(trace(step_rows(30), captures=stayed(10, 13)))
    assert times.step.tolist() == [*range(1, 10), *range(14, 30)]
    assert times.left_out_slowed == 0


def test_the_first_step_in_a_window_is_counted_as_warm_up_once() -> None:
    times = time_steps(trace(step_rows(6), captures=captured(0, 2)))
    assert (times.step.tolist(), times.left_out_warm_up, times.left_out_captured) == (
        [3, 4, 5],
        1,
        2,
    )


def test_a_phase_is_summed_within_its_step_and_stands_in_the_order_of_the_step() -> None:
    rows = [
        (0, 2, 1, 100, 110),  # forward
        (0, 4, 2, 101, 105),  # a range inside it is no phase
        (0, 1, 1, 120, 150),  # data, after it
        (0, 2, 1, 160, 163),  # forward once more
        (0, 0, 0, 100, 200),
        (-1, 1, 1, 205, 300),  # outside a step
        (1, 2, 1, 300, 307),
        (1, 0, 0, 300, 400),
        (2, 2, 1, 400, 499),  # of a step that never ended
    ]
    made = trace(rows)
    steps = time_steps(made)
    forward, data = time_phases(made, steps)
    assert (forward.name, forward.per_step_ns.tolist(), forward.total_ns) == (
        "forward",
        [13.0, 7.0],
        20,
    )
    assert (data.name, data.per_step_ns.tolist(), data.total_ns) == ("data", [30.0], 30)
    assert ranges_per_step(made.ranges, steps) == 3.0


def test_phases_find_their_steps_over_gaps_and_a_late_start() -> None:
    rows = [row for first in (7, 40, 41, 90) for row in step_rows(1, first=first)]
    made = trace(rows)
    phases = time_phases(made, time_steps(made))
    assert [phase.name for phase in phases] == list(NAMES[1:])
    assert phases[1].per_step_ns.tolist() == [12.0 * MS] * 4


def test_no_step_gives_no_phase() -> None:
    made = trace([(-1, 1, 1, 0, 5)])
    assert time_phases(made, time_steps(made)) == ()
    made = trace([(0, 0, 0, 0, 5)])
    assert time_phases(made, time_steps(made)) == ()


def test_names_made_anew_each_step_are_cut_to_the_longest() -> None:
    names = ("step", *(f"batch {i}" for i in range(100)))
    rows = []
    for i in range(100):
        rows += [(i, i + 1, 1, i * 1000, i * 1000 + i + 1), (i, 0, 0, i * 1000, i * 1000 + 500)]
    made = trace(rows, names=names)
    phases = time_phases(made, time_steps(made))
    assert sorted(p.total_ns for p in phases) == list(range(100 - MAX_PHASES + 1, 101))


def test_steps_by_the_million_are_analysed_in_seconds() -> None:
    steps = 300_000
    table = np.zeros((steps, 6, 5), dtype=np.int64)
    number = np.arange(steps)
    began_ns = number * 20 * MS
    table[:, :, 0] = number[:, None]
    for phase in range(5):
        table[:, phase, 1] = phase % 4 + 1
        table[:, phase, 2] = 1
        table[:, phase, 3] = began_ns + phase * 3 * MS
        table[:, phase, 4] = table[:, phase, 3] + number % 1000
    table[:, 5, 3] = began_ns
    table[:, 5, 4] = began_ns + 20 * MS
    ranges = Ranges(*np.ascontiguousarray(table.reshape(-1, 5).T))
    made = trace([], **{"ranges": ranges})
    began_s = time.process_time()
    times = time_steps(made)
    phases = time_phases(made, times)
    assert time.process_time() - began_s < 1.5  # about 0.2 s; a loop over the rows takes 3
    assert times.count == steps
    assert [(p.name, p.total_ns) for p in phases] == [
        ("data", 299_700_000),
        ("forward", 149_850_000),
        ("backward", 149_850_000),
        ("optimizer", 149_850_000),
    ]
