"""What makes the numbers of a captured window doubtful is said, and nothing else is."""

from __future__ import annotations

import pytest
from made_windows import Made
from sample_traces import sample

from trainscope.analysis.completeness import incomplete
from trainscope.analysis.window_steps import find_steps


def steps(count: int, launches: int, *, lost: int = 0, idle: int = 0) -> Made:
    """Steps with launches, of which the first ones lost their kernels; the last steps are idle."""
    made = Made()
    for step in range(count):
        at = step * 100_000
        made.range(f"ProfilerStep#{step}", at, at + 99_000)
        for launch in range(launches if step < count - idle else 0):
            begin = at + launch * 100
            if lost:
                lost -= 1
                made.call("cudaLaunchKernel", begin, begin + 5)
            else:
                made.launch(begin, begin + 10, begin + 50)
    return made


def told(made: Made) -> tuple[str, ...]:
    window = made.window()
    return incomplete(window, find_steps(window))


def test_a_whole_window_lacks_nothing() -> None:
    assert told(steps(3, 100)) == ()


def test_one_step_alone() -> None:
    assert told(steps(1, 10)) == (
        "only one step was captured, and it starts with nothing in the queue",
    )


def test_steps_without_gpu_work_beside_others_with_some() -> None:
    assert told(steps(4, 10, idle=1)) == ("1 of 4 steps has no GPU work",)
    assert told(steps(4, 10, idle=2)) == ("2 of 4 steps have no GPU work",)
    assert told(steps(4, 0)) == ()  # the reader tells that there is none at all


@pytest.mark.parametrize("lost", [4, 40])
def test_lost_kernels_from_one_in_a_hundred_on(lost: int) -> None:
    assert told(steps(3, 100, lost=lost)) == (
        f"{lost} of 300 launches in the steps have no GPU work",
    )
    assert told(steps(3, 100, lost=3)) == ()


def test_launches_into_a_graph_being_captured_are_not_lost() -> None:
    made = steps(3, 100, lost=90)
    made.call("cudaStreamBeginCapture_v10000", 0, 1)
    assert told(made) == ()


def test_calls_that_launch_nothing_are_none() -> None:
    made = steps(3, 2)
    for at in range(50):
        made.call("cudaEventQuery", 1000 + at, 1000 + at)
    assert told(made) == ()


@pytest.mark.parametrize("name", ["mid_sync_stack", "gpt_sync", "prep2_sync"])
def test_recorded_windows_are_whole(name: str) -> None:
    window = sample(name)
    assert incomplete(window, find_steps(window)) == ()
