"""Windows of chance: places not known, times that run backwards, calls that belong to nothing."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from made_windows import empty_window

from trainscope.analysis.idle import find_idle
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import by_site, find_syncs
from trainscope.report.build_gpu import as_gpu
from trainscope.trace.window import Calls, GpuOps, Spans, Syncs, Thread, Window

NAMES = (
    *("ProfilerStep#1", "ProfilerStep#2", "step 3", "data", "work", ""),
    *("cudaStreamSynchronize", "cudaMemcpyAsync", "cudaDeviceSynchronize", "cudaLaunchKernel"),
    *("cudaEventSynchronize", "cudaMemcpy", "cudaFree", "aten::item", "aten::mm", "c10d::x"),
    *("autograd::engine::evaluate_function: X", "train.py(3): f", "<built-in method item of T>"),
    "ncclDevKernel_AllReduce_x",
)
BELOW = {"thread": 3, "name_id": len(NAMES) + 1, "shape_id": 3, "correlation": 15, "device": 2}
BELOW |= {"stream": 4, "copy_kind": 5, "host_memory": 3, "bytes": 100}


def table(kind: type, chance: np.random.Generator):
    """Rows in which any number may be -1, names past the list, and ends before starts."""
    count = int(chance.integers(0, (1, 3, 30)[chance.integers(3)] + 1))
    start = chance.integers(-50, 400, count)
    columns = {"start_ns": start, "end_ns": start + chance.integers(-3, 80, count)}
    for field in fields(kind):
        if field.name == "kind":
            columns["kind"] = chance.integers(0, 3 if kind is GpuOps else 4, count)
        elif field.name not in columns:
            columns[field.name] = chance.integers(-1, BELOW.get(field.name, 10), count)
    return kind.of(columns)


def of_chance(seed: int) -> Window:
    chance = np.random.default_rng(seed)
    return replace(
        empty_window(),
        names=NAMES,
        shapes=("a", "b"),
        threads=tuple(Thread(1, place, "python") for place in range(3)),
        **{name: table(Spans, chance) for name in ("ops", "ranges", "frames")},
        calls=table(Calls, chance),
        gpu=table(GpuOps, chance),
        syncs=table(Syncs, chance),
    )


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_sums_hold_in_windows_of_chance(first: int) -> None:
    for seed in range(first, first + 50):
        window = of_chance(seed)
        steps = find_steps(window)
        assert (np.diff(steps.start_ns) > 0).all()
        syncs = find_syncs(window, steps)
        assert sum(len(waits) for waits in by_site(syncs).values()) == len(syncs)
        idle = find_idle(window, steps, syncs)
        assert (idle.cause_ns.sum(axis=-1) == idle.idle_ns).all()
        assert (idle.busy_ns + idle.idle_ns == idle.end_ns - idle.start_ns).all()
        assert (idle.idle_ns >= 0).all()
        assert (idle.busy_ns >= 0).all()
        gpu, report = as_gpu(window)
        assert sum(report.causes.values()) == pytest.approx(report.per_step_ms)
        spent = sum(device.idle_ms_per_step for device in gpu.devices)
        assert report.per_step_ms == pytest.approx(spent)


def test_equal_correlations_and_calls_without_ops_give_one_owner() -> None:
    base = of_chance(1)
    calls = Calls.of(
        {"start_ns": [0, 10], "end_ns": [5, 15], "correlation": [7, 7], "thread": [0, 0]}
    )
    gpu = GpuOps.of(
        {
            "start_ns": [20, 30],
            "end_ns": [30, 40],
            "correlation": [7, 9],
            "kind": [0, 0],
            "device": [0, 0],
            "stream": [7, 7],
        }
    )
    empty = Spans.empty()
    window = replace(base, calls=calls, gpu=gpu, ops=empty, ranges=empty, frames=empty)
    report, _ = as_gpu(window)
    assert report.launches.launches == 1
    assert report.launches.kernels == 2
