"""Kernels that nothing of this process holds up begin at once, unless the GPU is shared."""

from __future__ import annotations

import pytest
from made_windows import Made

from trainscope.analysis.replay.gpu_side import gpu_side
from trainscope.analysis.replay.judge import why_not
from trainscope.analysis.replay.program import Program
from trainscope.analysis.replay.shared_gpu import late_share

US = 1_000
PERIOD = 1_000 * US


def share(made: Made) -> float:
    window = made.window()
    return late_share(window, gpu_side(window))


def one_by_one(begins_us: list[int]) -> Made:
    """Kernels of 100 µs, each launched long after the one before, and begun so much later."""
    made = Made()
    for number, after_us in enumerate(begins_us):
        at = number * PERIOD
        made.launch(at, at + after_us * US, at + (after_us + 100) * US, cost=2 * US)
    return made


@pytest.mark.parametrize(
    ("begins_us", "expected"),
    [
        ([4] * 30, 0.0),
        ([4] * 30 + [300] * 10, 0.25),
        ([300] * 30, 1.0),
        ([300] * 19, 0.0),
        ([4] * 28 + [300] * 2, 0.0),
    ],
)
def test_kernels_that_begin_late_on_an_idle_gpu_tell_of_other_work(begins_us, expected) -> None:
    assert share(one_by_one(begins_us)) == expected


def test_what_this_process_runs_itself_is_a_reason_to_begin_late() -> None:
    made = one_by_one([4] * 30)
    for number in range(30):  # on another stream, behind the first one's kernel
        at = number * PERIOD
        made.launch(at + 10 * US, at + 104 * US, at + 300 * US, cost=2 * US, stream=8)
    assert share(made) == 0.0


def test_a_graph_of_several_kernels_takes_its_time() -> None:
    made = one_by_one([4] * 30)
    for number in range(30, 60):
        at = number * PERIOD
        graph = made.call("cudaGraphLaunch", at, at + 2 * US)
        made.kernel(at + 80 * US, at + 90 * US, graph).kernel(at + 91 * US, at + 99 * US, graph)
    assert share(made) == 0.0


def test_a_replay_that_does_not_come_out_names_the_other_work() -> None:
    def told(late: float, drift: float, measured_ms: float | None = None) -> str | None:
        program = Program((), 2, (), (), recorded_ns=2, gpu_ns=1, late_share=late)
        measured_ns = None if measured_ms is None else measured_ms * 1e6
        reason = why_not(
            program,
            drift=drift,
            measured_step_ns=measured_ns,
            replayed_step_ns=1e6,
            band=(1.0, 1.01),
        )
        return None if reason is None else reason.words

    assert str(told(0.0, -0.1)).endswith("so something in them is not understood")
    assert "something else was using the GPU: 30% of the kernels" in str(told(0.3, -0.1))
    assert "something else was using the GPU: 30% of the kernels" in str(told(0.3, 0.0, 1.2))
    assert told(0.0, 0.0, 1.2) == (
        "whatever the profiler is taken to cost, the replayed step is 16.7% shorter than the "
        "measured one"
    )
    assert told(0.3, 0.0, 1.0) is None
