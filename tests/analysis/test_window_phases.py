"""Phases of a captured window: which ranges they are, and whose GPU work is whose."""

from __future__ import annotations

from made_windows import Made, empty_window

from trainscope.analysis.window_phases import window_phases
from trainscope.analysis.window_steps import find_steps
from trainscope.trace.window import Window


def told(window: Window) -> list[tuple[str, list[int], list[int]]]:
    phases = window_phases(window, find_steps(window))
    return [(phase.name, phase.cpu_ns.tolist(), phase.gpu_ns.tolist()) for phase in phases]


def steps(made: Made, count: int = 2, length: int = 1000) -> Made:
    for step in range(count):
        made.range(f"ProfilerStep#{step}", step * length, (step + 1) * length - 10)
    return made


def test_the_outermost_ranges_of_a_step_are_its_phases() -> None:
    made = steps(Made())
    for at in (0, 1000):
        made.range("forward", at + 100, at + 300).range("attention", at + 120, at + 200)
        made.range("backward", at + 300, at + 500 + at // 10)
        made.launch(at + 150, at + 400, at + 450)  # forward's, though it runs in backward
        made.launch(at + 310, at + 450, at + 490)
        made.launch(at + 320, at + 480, at + 520, stream=8)
    made.range("optimizer", 1700, 1800)  # in the second step only
    assert told(made.window()) == [
        ("forward", [200, 200], [50, 50]),
        ("backward", [200, 300], [70, 70]),  # 450 to 520: the two overlap
        ("optimizer", [100], [0]),
    ]


def test_a_phase_that_comes_twice_in_a_step_is_added_up() -> None:
    made = steps(Made(), count=1)
    made.range("forward", 100, 200).range("forward", 300, 450)
    (phase,) = window_phases(made.window(), find_steps(made.window()))
    assert phase.cpu_ns.tolist() == [250]
    assert phase.share == 250 / 990


def test_work_of_autograds_thread_is_the_phases_that_waits_for_it_and_a_helpers_is_not() -> None:
    made = steps(Made())
    for at in (0, 1000):
        made.range("backward", at + 100, at + 600)
        made.op("aten::mm", at + 10, at + 20)
        made.op("autograd::engine::evaluate_function: MmBackward0", at + 200, at + 300, 1)
        made.launch(at + 210, at + 300, at + 340, thread=1)
        made.launch(at + 220, at + 400, at + 470, thread=2, stream=9)
    assert told(made.window()) == [("backward", [500, 500], [40, 40])]


def test_ranges_of_other_threads_around_steps_and_between_them_are_no_phases() -> None:
    made = steps(Made())
    made.range("epoch", 0, 5000).range("worker", 100, 200, thread=1)
    made.range("over the edge", 900, 1100)
    assert told(made.window()) == []


def test_without_steps_there_are_no_phases() -> None:
    assert told(empty_window()) == []
    assert told(Made().range("forward", 0, 10).window()) == []
    assert told(Made().range("on no known thread", 0, 10, thread=-1).window()) == []
