"""Ranges of a captured window: their depth in the step, and what they are inside of."""

from __future__ import annotations

from made_runs import trace
from made_windows import Made, empty_window

from trainscope.analysis.window_ranges import as_live_ranges, time_window_ranges
from trainscope.analysis.window_steps import find_steps
from trainscope.trace.window import Window


def loop() -> Window:
    made = Made().range("epoch", 0, 5000).range("load", 10, 90)
    for step in range(2):
        at = 100 + step * 1000
        made.range(f"ProfilerStep#{step}", at, at + 900)
        made.range("forward", at + 100, at + 500)
        made.range("attention", at + 150, at + 250).range("attention", at + 300, at + 350 + step)
        made.range("softmax", at + 160, at + 170)
        made.range("between", at + 920, at + 960)
    made.range("elsewhere", 200, 300, thread=1)
    return made.window()


def test_ranges_are_told_by_step_and_depth_in_the_order_in_which_they_closed() -> None:
    window = loop()
    found = as_live_ranges(window, find_steps(window))
    rows = zip(found.step, found.depth, found.name_id, found.start_ns, strict=True)
    told = [(int(s), int(d), window.names[n], int(t)) for s, d, n, t in rows]
    assert told[:7] == [
        (-1, 2, "load", 10),
        (0, 3, "softmax", 260),
        (0, 2, "attention", 250),
        (0, 2, "attention", 400),
        (0, 1, "forward", 200),
        (0, 1, "between", 1020),  # in the step's time, though its own range has ended
        (1, 3, "softmax", 1260),
    ]
    assert told[-2:] == [(-1, 2, "between", 2020), (-1, 1, "epoch", 0)]


def test_times_of_ranges_inside_phases_and_outside_steps() -> None:
    window = loop()
    found, left_out = time_window_ranges(trace(), window, find_steps(window))
    told = [
        (each.name, each.depth, each.inside, each.calls, each.per_step_ns.tolist(), each.total_ns)
        for each in found
    ]
    assert left_out == 0
    assert told == [
        ("epoch", 1, None, 1, [], 5000),
        ("attention", 2, "forward", 4, [150.0, 151.0], 301),
        ("load", 2, None, 1, [], 80),  # what is around a step too is not told
        ("between", 2, "epoch", 1, [], 40),
        ("softmax", 3, "forward", 2, [10.0, 10.0], 20),
    ]


def test_a_window_without_steps_or_ranges() -> None:
    window = Made().range("once", 0, 10).range("inner", 2, 5).window()
    steps = find_steps(window)
    assert len(steps) == 0
    assert time_window_ranges(trace(), empty_window(), find_steps(empty_window())) == ((), 0)
