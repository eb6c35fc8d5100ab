"""Which record a wait for an event is for, where CUDA does not tell: order of calls, and times."""

from dataclasses import replace

import numpy as np
import pytest
from little_gpu import MAIN, SIDE, Act, Item, LittleGpu, Op, Record, WaitEvent, WaitStream
from made_windows import Made

from trainscope.analysis.replay.events import Events, find_events
from trainscope.analysis.replay.gpu_side import gpu_side
from trainscope.analysis.replay.what_if import what_if
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import find_syncs
from trainscope.trace.window import Window

THIRD = 30
MAIN_LANE, SIDE_LANE, THIRD_LANE = 0, 1, 2


def events(window: Window) -> Events:
    return find_events(window, gpu_side(window), np.ones(len(window.calls), dtype=bool))


def matched(step: list[Act], **how: bool) -> tuple[set[tuple[int, int]], int, int]:
    """Waiting and awaited lanes, and how many were guessed and not resolved, in one step."""
    window = LittleGpu(step, **how).window(steps=1)  # type: ignore[arg-type]
    found = events(window)
    pairs = {(lane, found.recorded[record]) for lane, record in found.waited.values()}
    return pairs, found.guessed, found.unresolved


@pytest.mark.parametrize("how", [{"tells_events": True}, {}, {"sync_records": False}])
def test_a_wait_right_after_its_record_is_sure_with_two_streams(how: dict[str, bool]) -> None:
    step = [Op(9000), WaitStream(SIDE, MAIN), Op(9000, stream=SIDE), WaitStream(MAIN, SIDE), Op(1)]
    pairs = {(SIDE_LANE, MAIN_LANE), (MAIN_LANE, SIDE_LANE)}
    assert matched(step, **how) == (pairs, 0, 0)


def test_of_three_streams_it_is_the_one_last_launched_into() -> None:
    step = [
        Op(9000),
        Op(9000, stream=SIDE),
        WaitStream(THIRD, SIDE),
        Op(9000, stream=THIRD),
        WaitStream(MAIN, THIRD),
        Op(1000),
    ]
    pairs = {(THIRD_LANE, SIDE_LANE), (MAIN_LANE, THIRD_LANE)}
    assert matched(step) == (pairs, 2, 0)
    assert matched(step, tells_events=True) == (pairs, 0, 0)


def test_a_late_wait_is_for_the_latest_record_that_was_done() -> None:
    # the second bucket takes so long that the wait cannot have been for it
    step = [
        Op(5000, stream=SIDE),
        Record("first", SIDE),
        Op(4_000_000, stream=SIDE),
        Record("second", SIDE),
        Op(5000),
        WaitEvent("first", MAIN),
        Op(5000),
    ]
    window = LittleGpu(step).window(steps=1, turns_before=0)
    found = events(window)
    ((_, record),) = found.waited.values()
    first = min(row for row in found.recorded)
    assert (record, found.guessed) == (first, 1)


def test_times_that_no_record_bears_are_not_resolved() -> None:
    made = Made()
    made.launch(0, 10_000, 900_000, stream=SIDE)
    made.call("cudaEventRecord", 20, 30)
    made.call("cudaStreamWaitEvent", 40, 50)
    made.launch(60, 70_000, 80_000, stream=MAIN)  # ran while what it waits for still ran
    found = events(made.window())
    assert (found.waited, found.unresolved) == ({}, 1)


def test_waits_that_are_not_resolved_are_a_reason() -> None:
    step = [Op(90_000), WaitStream(SIDE, MAIN), Op(90_000, stream=SIDE), WaitStream(MAIN, SIDE)]
    step += [Op(90_000), Item("read")]
    window = LittleGpu(step).window()
    names = tuple(name.replace("cudaEventRecord", "cudaEventQuery") for name in window.names)
    window = replace(window, names=names)
    steps = find_steps(window)
    found = what_if(window, steps, find_syncs(window, steps), step_ns=LittleGpu(step).step_ns())
    assert found is not None
    assert found.removals == ()
    assert "8 waits of a stream for an event are not resolved" in (found.cannot_tell or "")


def test_a_cpu_wait_for_an_event_is_for_the_latest_record_done_by_then() -> None:
    made = Made()
    made.launch(0, 10_000, 50_000)
    first = made.call("cudaEventRecord", 20, 30)
    made.launch(40, 50_000, 400_000)
    made.call("cudaEventRecord", 60, 70)
    made.launch(80, 400_000, 500_000)
    made.wait(90, 60_000, name="cudaEventSynchronize")
    window = made.window()
    ((_, record),) = events(window).synced.items()
    assert window.calls.correlation[record] == first
