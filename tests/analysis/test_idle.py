"""GPU busy and idle in steps, and idle time by cause, to the nanosecond."""

from __future__ import annotations

import numpy as np
from made_windows import Made, empty_window

from trainscope.analysis.idle import IdleCause, IdleTimes, find_idle
from trainscope.analysis.intervals import union
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import WindowSync, find_syncs
from trainscope.trace.window import CopyKind, Memory, Window

US = 1000
MS = 1000 * US


def idle_of(window: Window) -> tuple[IdleTimes, tuple[WindowSync, ...]]:
    steps = find_steps(window)
    syncs = find_syncs(window, steps)
    found = find_idle(window, steps, syncs)
    assert (found.cause_ns.sum(axis=-1) == found.idle_ns).all()
    assert (found.idle_ns + found.busy_ns == found.end_ns - found.start_ns).all()
    pieces = found.pieces
    assert (pieces.end_ns - pieces.start_ns).sum() == found.idle_ns.sum()
    return found, syncs


def causes(found: IdleTimes, step: int = 0, device: int = 0) -> dict[str, int]:
    line = found.cause_ns[device, step]
    return {cause.name: int(line[cause]) for cause in IdleCause if line[cause]}


def blamed_ns(found: IdleTimes) -> int:
    """The idle time that syncs are to blame for, over all steps."""
    pieces = found.pieces
    return int((pieces.end_ns - pieces.start_ns)[pieces.sync >= 0].sum())


def test_union_merges_what_touches_and_measures_what_lies_before() -> None:
    found = union(np.array([50, 0, 10, 20, 70, 5]), np.array([60, 10, 15, 20, 80, 12]))
    assert found.start_ns.tolist() == [0, 50, 70]
    assert found.end_ns.tolist() == [15, 60, 80]
    assert found.before_ns(np.array([-5, 0, 7, 15, 55, 90])).tolist() == [0, 0, 7, 15, 20, 35]
    assert found.at(np.array([0, 14, 15, 75])).tolist() == [0, 0, -1, 2]
    assert found.filled(20).end_ns.tolist() == [15, 80]


def waiting_loop(prepare: int, work: int, turns: int = 3) -> Made:
    """Steps of CPU work outside operators, one launch, and a wait for its kernel."""
    made = Made()
    at = 0
    for number in range(turns):
        launched = at + prepare
        ends = launched + 10 * US + work
        made.launch(launched, launched + 10 * US, ends, cost=5 * US)
        made.wait(launched + 5 * US, ends + 2 * US)
        made.range(f"step {number}", at, ends + 3 * US)
        at = ends + 4 * US
    return made


def test_idle_after_a_sync_is_its_as_much_as_it_held_the_cpu() -> None:
    """2 ms of CPU work and a kernel of 0.9 ms: without the wait 2 ms a step would be left."""
    found, syncs = idle_of(waiting_loop(2 * MS, 900 * US).window())
    held = syncs[0].blocked_ns
    assert held == 907 * US
    assert found.idle_ns[0, 1] == 2 * MS + 14 * US
    assert causes(found, 1) == {
        "SYNC": held,
        "LAUNCH": 10 * US,
        "CPU_BEFORE_LAUNCH": 2 * MS + 4 * US - held,
    }
    assert found.by_step
    assert blamed_ns(found) == 2 * held + 3 * US


def test_a_sync_that_held_the_cpu_longer_takes_all_idle_time_after_it() -> None:
    found, _ = idle_of(waiting_loop(2 * MS, 9 * MS).window())
    assert causes(found, 1) == {"SYNC": 2 * MS + 14 * US}


def test_what_came_before_the_first_sync_is_no_syncs() -> None:
    found, _ = idle_of(waiting_loop(2 * MS, 9 * MS).window())
    assert causes(found, 0) == {"CPU_BEFORE_LAUNCH": 2 * MS, "LAUNCH": 10 * US}


def test_gaps_while_the_cpu_catches_up_are_the_syncs_until_its_time_is_used_up() -> None:
    made = Made().range("step 0", 0, 1000 * US).op("aten::x", 0, 1000 * US)
    made.launch(0, 10 * US, 100 * US).wait(60 * US, 110 * US)  # held for 50 µs
    for launched in (120, 160, 200):  # each kernel runs 10 µs: gaps of 30 µs, the first of 30
        begin = (launched + 10) * US
        made.launch(launched * US, begin, begin + 10 * US)
    made.range("step 1", 2000 * US, 2001 * US)
    found, _ = idle_of(made.window())
    pieces = found.pieces
    mine = pieces.sync == 0
    assert pieces.start_ns[mine].tolist() == [100 * US, 140 * US]
    assert pieces.end_ns[mine].tolist() == [130 * US, 160 * US]
    assert blamed_ns(found) == 50 * US


def test_of_two_syncs_the_later_is_to_blame_first_and_the_earlier_for_the_rest() -> None:
    made = Made().range("step 0", 0, 500 * US)
    made.launch(0, 10 * US, 100 * US, stream=7).launch(1 * US, 10 * US, 120 * US, stream=9)
    made.wait(20 * US, 100 * US).wait(102 * US, 122 * US, name="cudaDeviceSynchronize")
    made.launch(200 * US, 208 * US, 500 * US)
    found, syncs = idle_of(made.window())
    assert [s.blocked_ns for s in syncs] == [80 * US, 20 * US]
    pieces = found.pieces
    blamed = zip(
        pieces.sync.tolist(), pieces.start_ns.tolist(), pieces.end_ns.tolist(), strict=True
    )
    assert list(blamed) == [
        (-1, 0, 10 * US),
        (1, 120 * US, 140 * US),
        (0, 140 * US, 208 * US),
    ]


def test_a_wait_that_did_not_block_is_to_blame_for_nothing() -> None:
    made = Made().range("step 0", 0, 500 * US).launch(0, 10 * US, 100 * US)
    made.wait(150 * US, 152 * US).launch(300 * US, 308 * US, 500 * US)
    found, _ = idle_of(made.window())
    assert "SYNC" not in causes(found)


def test_a_helper_threads_wait_is_to_blame_for_nothing() -> None:
    made = Made().range("step 0", 0, 500 * US).launch(0, 10 * US, 100 * US)
    made.wait(50 * US, 101 * US, thread=1).launch(300 * US, 308 * US, 500 * US)
    found, _ = idle_of(made.window())
    assert causes(found) == {"LAUNCH": 18 * US, "CPU_WORK": 200 * US}


def test_gaps_of_ops_enqueued_in_time_are_the_gpus_own() -> None:
    made = Made().range("step 0", 0, 500 * US)
    made.launch(0, 10 * US, 100 * US).launch(20 * US, 101 * US, 200 * US)
    made.wait(30 * US, 210 * US).launch(250 * US, 258 * US, 500 * US)
    found, _ = idle_of(made.window())
    assert causes(found) == {"SYNC": 58 * US, "LAUNCH": 10 * US, "QUEUED": 1 * US}


def test_causes_by_what_the_cpu_was_doing() -> None:
    """One gap of 1 ms with each cause in turn, then the launch."""
    made = Made().range("step 0", 0, 2000 * US).launch(0, 10 * US, 100 * US)
    made.range("next_batch", 200 * US, 300 * US)
    made.op("c10d::allreduce_", 300 * US, 400 * US)
    copy = made.call("cudaMemcpyAsync", 400 * US, 450 * US)
    made.copy(2100 * US, 2101 * US, copy, CopyKind.H2D, Memory.PINNED, stream=9)
    made.op("aten::pin_memory", 450 * US, 500 * US).op("aten::mm", 500 * US, 600 * US)
    made.op("aten::mm", 650 * US, 700 * US)
    made.launch(1000 * US, 1008 * US, 2000 * US)
    made.op("aten::helper", 700 * US, 1000 * US, 1)
    found, _ = idle_of(made.window())
    assert causes(found) == {
        "DATA": 100 * US,
        "COMMUNICATION": 100 * US,
        "COPY": 100 * US,
        "LAUNCH": 10 * US + 200 * US + 8 * US,
        "CPU_WORK": 100 * US + 300 * US,
        "QUEUED": 100 * US,  # until the copy, which was enqueued long before
    }
    total = dict.fromkeys([cause.group for cause in IdleCause], 0)
    for cause in IdleCause:
        total[cause.group] += int(found.cause_ns[0, 0, cause])
    assert total["other"] == 500 * US
    assert sum(total.values()) == found.idle_ns.sum()


def test_an_op_whose_call_is_not_recorded_has_no_known_cause() -> None:
    made = Made().range("step 0", 0, 500).launch(0, 10, 100).kernel(300, 500)
    found, _ = idle_of(made.window())
    assert causes(found)["UNKNOWN"] == 200


def test_a_pageable_copy_on_its_way_is_a_copys_idle_time() -> None:
    made = Made().range("step 0", 0, 900 * US).launch(0, 10 * US, 100 * US)
    copy = made.call("cudaMemcpyAsync", 100 * US, 400 * US)
    made.copy(300 * US, 900 * US, copy, CopyKind.H2D)
    found, _ = idle_of(made.window())
    assert causes(found)["COPY"] == 200 * US


def test_a_step_is_the_time_until_its_own_last_op_ends() -> None:
    """The CPU is ahead by a step: ops of step 0 run in the time of step 1, and stay step 0's."""
    made = Made().range("step 0", 0, 100).range("step 1", 100, 200).range("step 2", 200, 300)
    made.launch(10, 20, 180, cost=2).launch(110, 180, 380, cost=2).launch(210, 390, 590, cost=2)
    found, _ = idle_of(made.window())
    assert found.start_ns.tolist() == [[0, 180, 380]]
    assert found.end_ns.tolist() == [[180, 380, 590]]
    assert found.busy_ns.tolist() == [[160, 200, 200]]
    assert found.idle_ns.tolist() == [[20, 0, 10]]
    assert causes(found, 2) == {"QUEUED": 10}


def test_busy_is_the_union_of_streams_and_each_device_has_its_own_line() -> None:
    made = Made().range("step 0", 0, 1000)
    made.launch(0, 100, 400, stream=7).launch(5, 300, 600, stream=9).launch(9, 350, 380, stream=11)
    made.launch(12, 200, 300, device=1)
    found, _ = idle_of(made.window())
    assert found.devices == (0, 1)
    assert found.busy_ns.tolist() == [[500], [100]]
    assert found.idle_ns.tolist() == [[500], [900]]
    assert set(found.pieces.device.tolist()) == {0, 1}


def test_a_step_may_begin_and_end_inside_ops_of_other_streams() -> None:
    made = Made().range("step 0", 0, 100).range("step 1", 100, 200)
    made.launch(10, 20, 300, stream=7).launch(20, 50, 400, stream=9)
    made.launch(110, 350, 600, stream=7).launch(120, 620, 650, stream=9)
    found, _ = idle_of(made.window())
    assert found.start_ns.tolist() == [[0, 400]]
    assert found.busy_ns.tolist() == [[380, 230]]
    assert found.idle_ns.tolist() == [[20, 20]]


def test_time_between_two_captured_stretches_is_no_steps() -> None:
    made = Made().range("step 1", 0, 100).launch(10, 20, 90)
    made.range("step 7", 5000, 5100).launch(5010, 5020, 5090)
    found, _ = idle_of(made.window())
    assert found.start_ns.tolist() == [[0, 5000]]
    assert found.end_ns.tolist() == [[100, 5100]]
    assert found.idle_ns.tolist() == [[30, 30]]


def test_without_steps_the_window_is_one_stretch() -> None:
    made = Made().launch(0, 10, 100).launch(300, 310, 400)
    found, _ = idle_of(made.window())
    assert not found.by_step
    assert found.start_ns.tolist() == [[10]]
    assert found.busy_ns.tolist() == [[180]]
    assert found.idle_ns.tolist() == [[210]]


def test_without_gpu_work_there_is_no_device() -> None:
    for window in (empty_window(), Made().range("step 0", 0, 5).op("aten::mm", 1, 2).window()):
        found, _ = idle_of(window)
        assert (found.devices, found.pieces.start_ns.tolist()) == ((), [])
