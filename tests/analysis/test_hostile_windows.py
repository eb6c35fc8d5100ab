"""The analyses of windows of chance: sums hold, nothing fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from chance_windows import of_chance

from trainscope.analysis.examined import examine
from trainscope.analysis.idle import find_idle
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import by_site, find_syncs
from trainscope.report.build_gpu import as_gpu
from trainscope.trace.window import Calls, GpuOps, Spans


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
        gpu, report = as_gpu(examine(window))
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
    report, _ = as_gpu(examine(window))
    assert report.launches.launches == 1
    assert report.launches.kernels == 2
