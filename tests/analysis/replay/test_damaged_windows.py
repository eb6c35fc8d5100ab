"""Windows with rows lost or wrong: the replay says less, and never a number that is none."""

from dataclasses import replace

import numpy as np
import pytest
from little_gpu import MAIN, SIDE, Cpu, DeviceSync, Item, LittleGpu, Op, Upload, WaitStream

from trainscope.analysis.replay.build import build_program
from trainscope.analysis.replay.what_if import what_if
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import find_syncs
from trainscope.errors import ConfigError
from trainscope.trace.window import Window

LOOP = [
    *[Op(200_000) for _ in range(4)],
    WaitStream(SIDE, MAIN),
    Op(300_000, stream=SIDE),
    WaitStream(MAIN, SIDE),
    Item("read"),
    Cpu(400_000),
    Upload("copy", 1_000_000, 150_000, 20_000),
    DeviceSync("drain"),
]
TABLES = ("ops", "ranges", "calls", "gpu", "syncs")


def damaged(window: Window, seed: int) -> Window:
    """The window with a few rows of one table dropped, or with one column of them made wrong."""
    chance = np.random.default_rng(seed)
    name = TABLES[chance.integers(len(TABLES))]
    table = getattr(window, name)
    if chance.random() < 0.3:
        return replace(window, **{name: table.take(chance.random(len(table)) > 0.2)})
    columns = dict(vars(table))
    column = sorted(columns)[chance.integers(len(columns))]
    values = columns[column].copy()
    rows = chance.random(len(values)) < 0.3
    wrong = [-1, 0, 10**6, -(10**6), 10**12] if column.endswith("_ns") else [-1]
    values[rows] = chance.choice(wrong)
    if chance.random() < 0.5:
        values[rows] = chance.permutation(columns[column][rows])
    return replace(window, **{name: type(table).of(columns | {column: values})})


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_a_damaged_window_gives_numbers_or_a_reason(first: int) -> None:
    whole = LittleGpu(LOOP, profiler_ns=1000, slower=1.4).window()
    with_ns = LittleGpu(LOOP).step_ns()
    told = 0
    for seed in range(first, first + 25):
        window = damaged(whole, seed)
        steps = find_steps(window)
        found = what_if(window, steps, find_syncs(window, steps), step_ns=with_ns)
        if found is None:
            continue
        assert bool(found.removals) != (found.cannot_tell is not None)
        for removal in found.removals:
            assert np.isfinite([removal.step_ns, removal.speedup, *removal.band]).all()
            assert removal.band[0] <= removal.speedup <= removal.band[1]
            told += 1
    assert told > 0


def test_work_launched_by_a_thread_apart_is_told() -> None:
    window = LittleGpu(LOOP).window()
    thread = window.calls.thread.copy()
    on_gpu = np.isin(window.calls.correlation, window.gpu.correlation)
    thread[np.flatnonzero(on_gpu)[::3]] = 1
    window = replace(
        window,
        calls=replace(window.calls, thread=thread),
        threads=(*window.threads, replace(window.threads[0], tid=999, name="prefetcher")),
    )
    steps = find_steps(window)
    found = what_if(window, steps, find_syncs(window, steps), step_ns=LittleGpu(LOOP).step_ns())
    assert found is not None
    assert "launched by threads other than the training loop's" in (found.cannot_tell or "")


def test_launches_before_the_window_are_no_lost_ones() -> None:
    window = LittleGpu([*[Op(200_000) for _ in range(40)]]).window()
    assert (window.gpu.correlation < window.calls.correlation.min()).any()
    steps = find_steps(window)
    program = build_program(window, steps, find_syncs(window, steps))
    assert program.unfollowed_ns == 0
    assert program.backlog_ns[0] > 0


@pytest.mark.parametrize("step_ns", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_refused(step_ns: float) -> None:
    window = LittleGpu(LOOP).window()
    steps = find_steps(window)
    with pytest.raises(ConfigError, match=r"step_ns=.* is no time of a step: give nanoseconds"):
        what_if(window, steps, find_syncs(window, steps), step_ns=step_ns)
