"""Whole forecasts against loops on a machine of the tests' own, where the true gain is known."""

import random
from statistics import median

import pytest
from little_gpu import (
    MAIN,
    SIDE,
    Act,
    Cpu,
    DeviceSync,
    Fetch,
    Graph,
    Item,
    LittleGpu,
    Op,
    Record,
    Upload,
    WaitEvent,
    WaitStream,
)

from trainscope.analysis.replay.what_if import MeasuredWait, WhatIf, what_if
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import find_syncs
from trainscope.trace.window import Window

PROFILED = {"profiler_ns": 1000, "slower": 1.4}
BIG = [Op(400_000) for _ in range(10)]
SMALL = [Op(5_000) for _ in range(100)]
READ = Item("read")
PREFETCH = [
    WaitStream(MAIN, SIDE),
    WaitStream(SIDE, MAIN),
    Op(1_500_000, stream=SIDE),
    *BIG[:5],
    READ,
    Cpu(800_000),
    *BIG[:5],
]
BUCKETS = [
    *BIG[:3],
    WaitStream(SIDE, MAIN),
    Op(600_000, stream=SIDE),
    Record("first bucket", SIDE),
    *BIG[:3],
    WaitStream(SIDE, MAIN),
    Op(600_000, stream=SIDE),
    Record("second bucket", SIDE),
    *BIG[:1],
    WaitEvent("first bucket", MAIN),
    WaitEvent("second bucket", MAIN),
    *SMALL[:30],
    READ,
    Cpu(700_000),
]
LOOPS = {
    "work, then a read": [Cpu(2_000_000), *BIG, READ],
    "launch-bound": [*SMALL, READ, *SMALL],
    "read in the middle": [*BIG, READ, Cpu(1_500_000), *SMALL],
    "graph": [Graph((300_000,) * 8), READ, Cpu(900_000)],
    "device sync": [*BIG[:5], DeviceSync("read"), *SMALL],
    "upload": [Upload("read", 25_000_000, 2_000_000, 25_000_000 // 55), *BIG],
    "prefetch": PREFETCH,
    "buckets": BUCKETS,
}


def forecast(window: Window, step_ns: float, wait: MeasuredWait | None = None) -> WhatIf:
    steps = find_steps(window)
    syncs = find_syncs(window, steps)
    found = what_if(window, steps, syncs, step_ns=step_ns, measured_wait=lambda _: wait)
    assert found is not None
    return found


@pytest.mark.parametrize("records", [True, False], ids=["with sync records", "without"])
@pytest.mark.parametrize("name", LOOPS)
def test_the_gain_of_a_known_loop_is_foretold(name: str, records: bool) -> None:
    step = LOOPS[name]
    with_ns = LittleGpu(step).step_ns()
    true = with_ns / LittleGpu(step, removed=frozenset({"read"})).step_ns()
    window = LittleGpu(step, sync_records=records, **PROFILED).window()
    found = forecast(window, with_ns)
    assert found.cannot_tell is None
    assert abs(found.drift) < 0.01
    assert found.removals[0].speedup == pytest.approx(true, rel=0.015)


def test_computation_before_an_operator_of_many_is_not_the_profiler_s() -> None:
    # profiled, the CPU is too slow for any sync to block; without a profiler each of them does
    batch = [Cpu(350_000), *[Op(75_000, cpu_ns=16_000, inner=14)] * 27, READ]
    step = [*batch * 4, *[Op(8_000, cpu_ns=16_000)] * 30]
    with_ns = LittleGpu(step).step_ns(turns=10)
    true = with_ns / LittleGpu(step, removed=frozenset({"read"})).step_ns(turns=10)
    window = LittleGpu(step, profiler_ns=1500, slower=1.8).window()
    blocked_ns = [sync.blocked_ns for sync in find_syncs(window, find_steps(window))]
    assert max(blocked_ns) < 80_000  # for no more than the last op
    found = forecast(window, with_ns)
    assert found.cannot_tell is None
    assert any("waits longer for the GPU" in words for words in found.assumptions)
    assert true > 1.18
    assert found.removals[0].speedup == pytest.approx(true, rel=0.015)


@pytest.mark.parametrize("cpu_ns", [40_000, 45_000])
def test_measured_waits_tell_a_cpu_that_is_too_slow_from_one_that_waits(cpu_ns: int) -> None:
    # both explain the step: one that waits and has 0.7 ms to do after, one that is always late
    batch = [Cpu(700_000), *[Op(75_000, cpu_ns=cpu_ns, inner=14)] * 27, READ]
    step = [*batch * 4, *[Op(8_000, cpu_ns=16_000)] * 30]
    live = LittleGpu(step)
    with_ns = live.step_ns(turns=10)
    wait = MeasuredWait(live.waited_ns / 20)
    true = with_ns / LittleGpu(step, removed=frozenset({"read"})).step_ns(turns=10)
    window = LittleGpu(step, profiler_ns=1500, slower=1.8).window()
    assert "the speedup may be anything" in (forecast(window, with_ns).cannot_tell or "")
    found = forecast(window, with_ns, wait)
    assert found.cannot_tell is None
    assert found.measured_wait_ns == wait.ns_per_step
    low, high = found.removals[0].band
    assert low <= true <= high
    assert found.removals[0].speedup == pytest.approx(true, rel=0.035)


@pytest.mark.parametrize("told", [True, False], ids=["events told", "events not told"])
@pytest.mark.parametrize("step", [PREFETCH, BUCKETS], ids=["prefetch", "buckets"])
def test_it_matters_little_whether_cuda_tells_what_events_are_of(
    step: list[Act], told: bool
) -> None:
    with_ns = LittleGpu(step).step_ns()
    found = forecast(LittleGpu(step, tells_events=told, **PROFILED).window(), with_ns)
    true = with_ns / LittleGpu(step, removed=frozenset({"read"})).step_ns()
    assert found.cannot_tell is None
    assert found.removals[0].speedup == pytest.approx(true, rel=0.015)
    assert any("waits between streams" in words for words in found.assumptions) == (
        not told and step is BUCKETS
    )


@pytest.mark.parametrize("period_ns", [9_000_000, 7_000_000, 3_000_000, 500_000])
def test_a_loader_s_workers_limit_what_a_sync_can_cost(period_ns: int) -> None:
    step = [Fetch(period_ns), *BIG, READ, Cpu(2_000_000)]
    with_ns = LittleGpu(step).step_ns()
    true = with_ns / LittleGpu(step, removed=frozenset({"read"})).step_ns()
    found = forecast(LittleGpu(step, **PROFILED).window(), with_ns)
    assert found.cannot_tell is None
    assert found.removals[0].speedup == pytest.approx(true, rel=0.015)
    slow = period_ns > 6_100_000
    assert (true == pytest.approx(1.0)) == slow
    said = " ".join(found.assumptions)
    assert ("deliver no faster than now" in said, "keep up" in said) == (slow, not slow)


def loop_of_chance(seed: int) -> tuple[list[Act], frozenset[str]]:
    """Some parts in a row, and the names of the syncs among them."""
    chance = random.Random(seed)
    step: list[Act] = []
    names = [f"sync {place}" for place in range(chance.randint(1, 3))]
    late: list[str] = []
    two_streams = chance.random() < 0.4
    for place, name in enumerate(names):
        kinds = ["big", "small", "cpu", "graph"] + ["fork", "late"] * two_streams
        for kind in chance.choices(kinds, k=chance.randint(1, 4)):
            us = chance.randint(50, 600)
            if kind == "big":
                step += [Op(us * 1000)] * chance.randint(1, 6)
            elif kind == "small":
                step += [Op(us * 20, cpu_ns=us * 25)] * chance.randint(10, 60)
            elif kind == "cpu":
                step.append(Cpu(us * 4000))
            elif kind == "graph":
                step.append(Graph((us * 300,) * 6))
            elif kind == "fork":
                step += [WaitStream(SIDE, MAIN), Op(us * 1000, stream=SIDE), WaitStream(MAIN, SIDE)]
            else:
                late.append(f"event {len(late)}")
                step += [Op(us * 1000, stream=SIDE), Record(late[-1], SIDE)]
        step.append(DeviceSync(name) if chance.random() < 0.2 else Item(name, 5000 + place))
    step += [WaitEvent(event, MAIN) for event in late]
    return [*step, Op(100_000), Op(100_000)], frozenset(names)


def test_gains_of_loops_of_chance_are_foretold() -> None:
    misses, silent = [], 0
    for seed in range(24):
        step, names = loop_of_chance(seed)
        with_ns = LittleGpu(step).step_ns()
        true = with_ns / LittleGpu(step, removed=names).step_ns()
        found = forecast(LittleGpu(step, **PROFILED).window(), with_ns)
        if found.cannot_tell is not None:
            silent += 1
            continue
        misses.append(abs(found.removals[0].speedup / true - 1))
    assert (median(misses) < 0.006, max(misses) < 0.04, silent <= 2) == (True, True, True)


def test_a_loop_profiled_in_another_machine_s_time_is_not_forecast() -> None:
    window = LittleGpu(LOOPS["launch-bound"], **PROFILED).window()
    half = LittleGpu(LOOPS["launch-bound"]).step_ns() / 4
    assert "step time given" in (forecast(window, half).cannot_tell or "")
