"""Which stretches of a window are steps, and which GPU work is a step's."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest
from made_windows import Made, empty_window

from trainscope.analysis.idle import find_idle
from trainscope.analysis.window_steps import find_steps
from trainscope.trace.window import Calls, GpuOps, Spans


def test_profiler_steps_come_first_and_their_period_is_the_distance_of_starts() -> None:
    made = Made()
    for number, start in ((4, 0), (5, 100), (6, 230)):
        made.range(f"ProfilerStep#{number}", start, start + 90).range(
            "loop_body", start + 5, start + 80
        )
    steps = find_steps(made.window())
    assert steps.number.tolist() == [4, 5, 6]
    assert steps.start_ns.tolist() == [0, 100, 230]
    assert steps.end_ns.tolist() == [90, 190, 320]
    assert steps.period_ns.tolist() == [100, 130, -1]
    assert steps.until_ns.tolist() == [100, 230, 320]
    assert (steps.thread, steps.found_by) == (0, "ranges ProfilerStep#N")


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("step 12", "step 13"), [12, 13]),
        (("trainscope: step 12", "trainscope: step 13"), [12, 13]),
        (("step_4", "step_5"), [4, 5]),
        (("iteration 7", "iteration 8"), [7, 8]),
        (("train_step#7", "train_step#8"), [7, 8]),
        (("epoch 1, batch 3", "epoch 1, batch 4"), [3, 4]),
        (("batch 32", "batch 32"), [0, 1]),
        (("[pl][profile]run_training_batch",) * 2, [0, 1]),
    ],
)
def test_other_names_of_steps(names: tuple[str, str], numbers: list[int]) -> None:
    made = Made().range(names[0], 0, 90).range("forward", 10, 50)
    steps = find_steps(made.range(names[1], 100, 180).range("forward", 110, 150).window())
    assert steps.number.tolist() == numbers
    assert steps.start_ns.tolist() == [0, 100]
    assert steps.period_ns.tolist() == [100, -1]


def test_a_step_that_was_begun_at_the_end_of_an_epoch_for_nothing_is_none() -> None:
    """Its fetch found no batch; what came until the next, an evaluation, is in no step's time."""
    made = Made()
    for number, start, end in ((3, 0, 90), (4, 100, 103), (4, 500, 590), (5, 600, 690)):
        made.range(f"step {number}", start, end)
        if end - start > 3:
            made.call("cudaLaunchKernel", start + 10, start + 12)
    made.call("cudaLaunchKernel", 300, 302)
    steps = find_steps(made.window())
    assert steps.number.tolist() == [3, 4, 5]
    assert steps.start_ns.tolist() == [0, 500, 600]
    assert steps.period_ns.tolist() == [-1, 100, -1]
    assert steps.until_ns.tolist() == [90, 600, 690]
    assert steps.of_calls(made.window()).tolist() == [0, -1, 1, 2]


def test_what_a_program_does_between_two_steps_is_in_neither() -> None:
    """As an agent that acts in an environment, and then learns in one step or in a few."""
    ms = 1_000_000
    made = Made()
    for number, start, end in ((7, 0, 10), (8, 400, 410), (9, 410, 420), (10, 421, 430)):
        made.range(f"step {number}", start * ms, end * ms)
        made.launch(start * ms + 10, start * ms + 30, start * ms + 5 * ms)
    made.launch(200 * ms, 200 * ms + 20, 300 * ms)
    window = made.window()
    steps = find_steps(window)
    assert steps.period_ns.tolist() == [10 * ms, 10 * ms, 11 * ms, -1]
    assert steps.until_ns.tolist() == [10 * ms, 410 * ms, 421 * ms, 430 * ms]
    assert steps.follows.tolist() == [False, True, True, False]
    assert steps.of_ops(window).tolist() == [0, -1, 1, 2, 3]
    assert steps.gpu_period_ns(window).tolist() == [-1, 10 * ms, 11 * ms, -1]
    idle = find_idle(window, steps, ())
    assert (idle.end_ns - idle.start_ns).tolist() == [[10 * ms, 5 * ms, 10 * ms, 15 * ms]]


@pytest.mark.parametrize(
    ("length", "periods"),
    [
        (200, [300, 300]),  # how long the last turn was nobody knows
        (290, [300, 300, -1]),
    ],
)
def test_the_outermost_name_that_repeats_is_a_step_where_none_is_named(
    length: int, periods: list[int]
) -> None:
    made = Made().range("epoch", 0, 1000)
    for start in (10, 310, 610):
        made.range("work", start, start + length).range("layer", start + 10, start + 60)
        made.range("layer", start + 70, start + 120)
    steps = find_steps(made.window())
    assert steps.found_by == "the range 'work', the outermost that repeats"
    assert steps.number.tolist() == [*range(len(periods))]
    assert steps.period_ns.tolist() == periods
    assert steps.covered == pytest.approx(length / 300)


def test_of_names_side_by_side_the_first_begins_the_step() -> None:
    made = Made()
    for start in (0, 100, 200):
        made.range("forward", start, start + 20).range("backward", start + 20, start + 80)
        made.range("Optimizer.step#SGD.step", start + 80, start + 85)
    steps = find_steps(made.window())
    assert steps.start_ns.tolist() == [0, 100]
    assert "'forward'" in steps.found_by


def test_with_the_optimizers_ranges_alone_a_step_is_from_one_to_the_next() -> None:
    made = Made()
    for start in (0, 100, 200):
        made.range("Optimizer.step#SGD.step", start + 80, start + 85)
        made.range("Optimizer.zero_grad#SGD.zero_grad", start + 86, start + 99)
    steps = find_steps(made.window())
    assert steps.found_by == (
        "the time from one optimizer step to the next ('Optimizer.step#SGD.step')"
    )
    assert steps.period_ns.tolist() == [100, 100]


def test_no_steps_comes_with_its_reason() -> None:
    assert "has no ranges" in find_steps(empty_window()).cannot_tell
    once = find_steps(Made().range("epoch", 0, 1000).window())
    assert len(once) == 0
    assert "no range repeats" in once.cannot_tell
    assert once.at(np.array([5])).tolist() == [-1]


def test_one_step_has_no_period() -> None:
    steps = find_steps(Made().range("ProfilerStep#3", 10, 60).window())
    assert (steps.number.tolist(), steps.period_ns.tolist()) == ([3], [-1])
    assert steps.at(np.array([9, 10, 59, 60])).tolist() == [-1, 0, 0, -1]


def test_one_threads_steps_only_nested_ones_left_out_and_overlapping_ones_cut() -> None:
    made = Made().range("ProfilerStep#1", 0, 100).range("ProfilerStep#2", 98, 200)
    made.range("ProfilerStep#7", 110, 150).range("ProfilerStep#9", 0, 500, thread=1)
    made.range("ProfilerStep#3", 200, 200)
    steps = find_steps(made.window())
    assert steps.number.tolist() == [1, 2]
    assert steps.start_ns.tolist() == [0, 100]
    assert steps.thread == 0


def test_a_missing_number_leaves_the_time_between_to_no_step() -> None:
    made = Made().range("ProfilerStep#1", 0, 90).range("ProfilerStep#2", 100, 190)
    steps = find_steps(made.range("ProfilerStep#8", 900, 990).window())
    assert steps.period_ns.tolist() == [100, -1, -1]
    assert steps.at(np.array([95, 150, 195, 500, 900])).tolist() == [0, 1, -1, -1, 2]


def test_gpu_work_is_the_step_that_enqueued_it_not_the_one_it_ran_in() -> None:
    made = Made().range("ProfilerStep#1", 0, 90).range("ProfilerStep#2", 100, 190)
    made.launch(10, 20, 150).launch(20, 150, 300, thread=1).launch(110, 300, 450)
    made.kernel(460, 470, -1).launch(500, 510, 520)
    steps = find_steps(made.window())
    assert steps.of_ops(made.window()).tolist() == [0, 0, 1, -1, -1]
    assert steps.gpu_period_ns(made.window()).tolist() == [280, -1]


def test_a_million_rows_take_less_than_a_second() -> None:
    count = 250_000
    start = np.arange(count) * 1000
    ids = np.arange(count)
    window = replace(
        empty_window(),
        names=("kernel", "layer", *(f"ProfilerStep#{i}" for i in range(100))),
        ranges=Spans.of(
            {
                "start_ns": np.concatenate([start, np.arange(100) * 2_500_000]),
                "end_ns": np.concatenate([start + 900, np.arange(1, 101) * 2_500_000 - 50]),
                "name_id": np.concatenate([np.ones(count), np.arange(100) + 2]),
                "thread": np.zeros(count + 100),
            }
        ),
        calls=Calls.of(
            {"start_ns": start, "end_ns": start + 5, "thread": ids * 0, "correlation": ids}
        ),
        gpu=GpuOps.of({"start_ns": start + 9, "end_ns": start + 900, "correlation": ids[::-1]}),
    )
    began_s = perf_counter()
    steps = find_steps(window)
    of_ops = steps.of_ops(window)
    assert perf_counter() - began_s < 1
    assert len(steps) == 100
    assert np.bincount(of_ops[of_ops >= 0]).tolist() == [2500] * 100
