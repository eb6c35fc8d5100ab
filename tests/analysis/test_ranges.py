from __future__ import annotations

import time

import numpy as np
from made_runs import MS, step_rows, trace

from trainscope.analysis.ranges import MAX_RANGES, time_ranges
from trainscope.analysis.steps import time_phases, time_steps
from trainscope.trace.ranges import Ranges
from trainscope.trace.trace import Trace

NAMES = ("step", "forward", "backward", "block", "tokenize", "validation")
Told = tuple[str, int, bool, str | None, int, list[float], int]


def told(made: Trace) -> list[Told]:
    ranges, left_out = time_ranges(made, time_steps(made))
    assert left_out == 0
    return [
        (r.name, r.depth, r.in_steps, r.inside, r.calls, r.per_step_ns.tolist(), r.total_ns)
        for r in ranges
    ]


def test_ranges_inside_phases_are_summed_within_their_step() -> None:
    rows = [
        (0, 3, 2, 10, 20),
        (0, 4, 3, 21, 22),
        (0, 3, 2, 20, 25),
        (0, 1, 1, 10, 30),
        (0, 3, 2, 31, 33),  # in backward, as the fewest are
        (0, 2, 1, 30, 40),
        (0, 0, 0, 10, 50),
        (1, 3, 2, 60, 61),
        (1, 1, 1, 60, 70),
        (1, 0, 0, 60, 80),
        (2, 3, 2, 90, 99),  # of a step that never ended
    ]
    assert told(trace(rows, names=NAMES)) == [
        ("block", 2, True, "forward", 4, [17.0, 1.0], 18),
        ("tokenize", 3, True, "forward", 1, [1.0], 1),
    ]


def test_ranges_outside_steps_have_a_total_and_what_is_around_them() -> None:
    rows = [
        (-1, 1, 2, 100, 103),
        (-1, 5, 1, 100, 110),
        (-1, 1, 2, 200, 204),
        (-1, 5, 1, 200, 210),
        (-1, 1, 1, 300, 301),  # a forward of its own
    ]
    assert told(trace(rows, names=NAMES)) == [
        ("validation", 1, False, None, 2, [], 20),
        ("forward", 2, False, "validation", 2, [], 7),
        ("forward", 1, False, None, 1, [], 1),
    ]


def test_a_range_that_a_kill_left_without_its_phase_lies_in_none() -> None:
    rows = [(0, 3, 2, 10, 20), (0, 0, 0, 10, 50), (1, 1, 1, 60, 70), (1, 0, 0, 60, 80)]
    assert told(trace(rows, names=NAMES)) == [("block", 2, True, None, 1, [10.0], 10)]


def test_warm_up_steps_and_runs_without_any_have_no_ranges() -> None:
    rows = [row for row in step_rows(6) for _ in (0,)]
    rows.insert(0, (0, 1, 2, rows[0][3], rows[0][4]))
    assert told(trace(rows)) == []
    assert told(trace([])) == []
    assert told(trace([(0, 3, 2, 10, 20)], names=NAMES)) == []


def test_steps_that_closed_out_of_their_order_are_put_in_it() -> None:
    rows = [
        *((1, 3, 2, 60, 61), (1, 1, 1, 60, 70), (1, 0, 0, 60, 80)),
        *((0, 3, 2, 10, 13), (0, 1, 1, 10, 30), (0, 0, 0, 10, 50)),
    ]
    assert told(trace(rows, names=NAMES)) == [("block", 2, True, "forward", 2, [3.0, 1.0], 4)]


def test_names_made_anew_are_cut_to_the_longest() -> None:
    names = ("step", *(f"file {i}" for i in range(MAX_RANGES + 50)))
    rows = [(-1, i + 1, 1, 0, i + 1) for i in range(MAX_RANGES + 50)]
    made = trace(rows, names=names)
    ranges, left_out = time_ranges(made, time_steps(made))
    assert left_out == 50
    assert [r.total_ns for r in ranges] == list(range(MAX_RANGES + 50, 50, -1))


def test_a_million_steps_are_analysed_in_seconds() -> None:
    steps = 1_000_000
    table = np.zeros((steps, 4, 5), dtype=np.int64)
    number = np.arange(steps)
    began_ns = number * 20 * MS
    table[:, :, 0] = number[:, None]
    for place, (name_id, depth, first_ms) in enumerate(((3, 2, 1), (4, 2, 3), (1, 1, 0))):
        table[:, place, 1:3] = name_id, depth
        table[:, place, 3] = began_ns + first_ms * MS
        table[:, place, 4] = table[:, place, 3] + MS
    table[:, 2, 4] = began_ns + 9 * MS
    table[:, 3, 3] = began_ns
    table[:, 3, 4] = began_ns + 20 * MS
    ranges = Ranges(*np.ascontiguousarray(table.reshape(-1, 5).T))
    made = trace([], **{"ranges": ranges, "names": NAMES})
    began_s = time.process_time()
    times = time_steps(made)
    phases = time_phases(made, times)
    found, left_out = time_ranges(made, times)
    assert time.process_time() - began_s < 3
    assert (len(phases), left_out) == (1, 0)
    assert [(r.name, r.inside, r.calls, r.total_ns) for r in found] == [
        ("block", "forward", steps - 1, (steps - 1) * MS),
        ("tokenize", "forward", steps - 1, (steps - 1) * MS),
    ]
