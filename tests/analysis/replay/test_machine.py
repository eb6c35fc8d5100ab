"""The machine on programs whose times are known: all in ns."""

from dataclasses import replace

import numpy as np
import pytest

from trainscope.analysis.replay.machine import (
    QUEUE_LIMIT,
    Samples,
    run,
    run_for_drawing,
    run_once,
)
from trainscope.analysis.replay.program import Act, Item, Program
from trainscope.analysis.replay.removal import without
from trainscope.analysis.window_site import WindowSite

PLAIN = Samples.as_recorded()


def site(kind: str = "item") -> WindowSite:
    return WindowSite(
        kind=kind, file=None, line=None, line_is="", function=None, phase=None, ranges=(),
        operator="aten::item", after="", thread="main", ordinal=1, alike=1, in_steps=True,
    )  # fmt: skip


def program(*items: Item, lanes: int = 1, sites: int = 1, steps: int = 1, **more) -> Program:
    return Program(
        items=items,
        steps=steps,
        lanes=tuple((0, 7 + lane) for lane in range(lanes)),
        sites=tuple(site() for _ in range(sites)),
        recorded_ns=1,
        gpu_ns=0,
        **more,
    )


def cpu(ns: float) -> Item:
    return Item(0.0, 0.0, fixed_ns=ns)


def launch(cost: float, length: float, lane: int = 0, gap: float = 0.0, **more) -> Item:
    return Item(
        0.0, 0.0, fixed_ns=cost, act=Act.LAUNCH, lane=lane, length_ns=length, gap_ns=gap, **more
    )


def wait(lane: int = 0, wake: float = 0.0, place: int = 0, **more) -> Item:
    return Item(0.0, 0.0, act=Act.WAIT, lane=lane, wake_ns=wake, site=place, **more)


def step_ns(made: Program) -> float:
    return float(run(made, PLAIN)[0])


def test_the_longer_of_cpu_and_gpu_is_the_step() -> None:
    assert step_ns(program(cpu(50), launch(10, 400))) == pytest.approx(400)
    assert step_ns(program(cpu(500), launch(10, 400))) == pytest.approx(510)


def test_the_gap_between_kernels_of_a_full_stream_counts() -> None:
    assert step_ns(program(launch(10, 100, gap=7), launch(10, 100, gap=7))) == pytest.approx(214)


def test_a_sync_adds_the_cpu_time_after_it_and_the_latency() -> None:
    made = program(cpu(300), launch(10, 1000, latency_ns=20), wait(wake=5))
    assert step_ns(made) == pytest.approx(300 + 10 + 20 + 1000 + 5)
    assert step_ns(without(made, [0])) == pytest.approx(1000)


def test_a_sync_where_the_cpu_is_late_anyway_gains_nothing() -> None:
    made = program(launch(10, 100), cpu(900), wait())
    assert step_ns(made) == pytest.approx(910)
    assert step_ns(without(made, [0])) == pytest.approx(910)


def test_gains_of_two_syncs_do_not_add() -> None:
    made = program(cpu(200), launch(0, 500), wait(place=0), launch(0, 500), wait(place=1), sites=2)
    assert step_ns(made) == pytest.approx(1200)
    assert step_ns(without(made, [0])) == pytest.approx(1200)
    assert step_ns(without(made, [1])) == pytest.approx(1000)
    half = [cpu(200), launch(0, 500)]
    both = program(*half, wait(place=0), *half, wait(place=1), sites=2)
    assert [step_ns(without(both, gone)) for gone in ([], [0], [1], [0, 1])] == pytest.approx(
        [1400, 1200, 1200, 1000]
    )


def test_two_streams_overlap_and_an_event_orders_them() -> None:
    apart = program(launch(10, 400), launch(10, 300, lane=1), lanes=2)
    assert step_ns(apart) == pytest.approx(400)
    ordered = program(
        launch(10, 400),
        Item(0.0, 0.0, act=Act.RECORD, lane=0, event=1),
        Item(0.0, 0.0, act=Act.STREAM_WAIT, lane=1, event=1),
        launch(10, 300, lane=1),
        Item(0.0, 0.0, act=Act.RECORD, lane=1, event=2),
        Item(0.0, 0.0, act=Act.STREAM_WAIT, lane=0, event=2),
        lanes=2,
    )
    assert step_ns(ordered) == pytest.approx(700)


def test_a_device_sync_waits_for_all_streams_and_a_stream_sync_for_one() -> None:
    both = [launch(0, 100), launch(0, 900, lane=1)]
    assert run_once(program(*both, wait(lane=-1), lanes=2)) == pytest.approx(900)
    assert run_once(program(*both, wait(lane=0), lanes=2)) == pytest.approx(100)


def test_a_removed_stream_sync_still_orders_the_other_streams() -> None:
    items = (cpu(50), launch(0, 500), wait(), launch(0, 300, lane=1))
    made = replace(program(*items, lanes=2), sites=(site("stream"),))
    freed = without(made, [0])
    spans, length_ns = run_for_drawing(freed, PLAIN)
    first = [end for _, end, place in spans.gpu if place == 1]
    second = [start for start, _, place in spans.gpu if place == 3]
    # each of the second stream's begins where one of the first has just ended
    assert [round(start % length_ns) for start in second] == [
        round(end % length_ns) for end in first[: len(second)]
    ]
    assert run_once(freed) == pytest.approx(50)  # the CPU does not wait


def test_a_removed_read_takes_its_operator_and_its_copy_along() -> None:
    made = program(
        launch(10, 1000),
        Item(0.0, 0.0, fixed_ns=30, within=0),
        launch(5, 40, site=0, within=0),
        wait(within=0),
        Item(0.0, 0.0, fixed_ns=30, within=0),
    )
    assert step_ns(made) == pytest.approx(10 + 1000 + 40 + 30)
    assert step_ns(without(made, [0])) == pytest.approx(1000)


def test_a_size_that_is_known_needs_no_copy_and_no_wait() -> None:
    copy = replace(launch(0, 40, site=0, bytes=8), cpu_ns=130, call_ns=80, boundaries=3)
    asked = Item(50.0, 4.0, act=Act.WAIT, lane=0, site=0, call_ns=20.0)
    made = replace(program(launch(10, 100), copy, asked), sites=(site("nonzero"),))
    left = without(made, [0]).items[1:]
    assert [(item.act, item.cpu_ns, item.boundaries) for item in left] == [
        (Act.NONE, 50, 1),
        (Act.NONE, 30, 2),
    ]
    # the copy's end, 180 ns after the step began, comes before the wait is called
    assert step_ns(made) == pytest.approx(10 + 130 + 50)
    assert step_ns(without(made, [0])) == pytest.approx(max(100, 10 + 50 + 30))


def test_a_removed_pageable_copy_becomes_one_from_pinned_memory() -> None:
    copy = launch(10, 4000, site=0, bytes=25_000)
    made = program(copy, wait(), launch(10, 600), pinned_bytes_per_ns=25.0)
    made = replace(made, sites=(site("h2d-pageable"),))
    assert step_ns(made) == pytest.approx(4610)
    assert step_ns(without(made, [0])) == pytest.approx(1600)
    faster = replace(PLAIN, copy_rate=np.full(1, 2.0))
    assert run(without(made, [0]), faster)[0] == pytest.approx(1100)


def test_the_launch_queue_is_bounded() -> None:
    many = [launch(1, 10_000) for _ in range(QUEUE_LIMIT + 10)]
    assert run_once(program(*many[:-10])) == pytest.approx(QUEUE_LIMIT)
    # the last launch waits for the tenth kernel to begin
    assert run_once(program(*many)) == pytest.approx(90_001)


def test_the_profiler_s_share_is_taken_off_cpu_time_but_not_off_sleep() -> None:
    made = program(Item(1000.0, 4.0, fixed_ns=5000.0))
    samples = Samples(np.array([100.0, 900.0]), np.array([0.5, 0.5]), *[np.ones(2)] * 5)
    assert run(made, samples) == pytest.approx([5300, 5250])


@pytest.mark.parametrize("backward", [False, True])
def test_autograd_s_thread_has_a_scale_of_its_own(backward: bool) -> None:
    made = program(Item(1000.0, 0.0, backward=backward))
    samples = Samples(np.zeros(1), np.array([0.5]), np.array([1.5]), *[np.ones(1)] * 4)
    assert run(made, samples)[0] == pytest.approx(750 if backward else 500)


def test_many_samples_give_what_each_gives_alone() -> None:
    made = program(Item(300.0, 2.0), launch(10, 400), wait(wake=3), Item(80.0, 1.0))
    scale = np.linspace(0.4, 1.4, 9)
    together = run(made, Samples(np.full(9, 20.0), scale, *[np.ones(9)] * 5))
    alone = [
        run(made, Samples(np.full(1, 20.0), scale[i : i + 1], *[np.ones(1)] * 5))[0]
        for i in range(9)
    ]
    assert together == pytest.approx(alone)
