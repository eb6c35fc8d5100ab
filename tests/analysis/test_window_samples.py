"""Steps, waits and idle time of loops recorded on an H200, against what was measured there."""

from __future__ import annotations

import numpy as np
import pytest
from sample_traces import sample, truth

from trainscope.analysis.idle import IdleCause, IdleTimes, find_idle
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import by_site, find_syncs

SAMPLES = ["prep2_sync", "mid_sync", "mid_sync_stack", "h2d_sync", "mask_sync", "mask_sync_stack"]
SAMPLES += ["gpt_sync", "data_sync", "data_sync_stack", "mid_free", "h2d_free", "mask_free"]
SAMPLES += ["gpt_free", "data_free", "prep2_free"]


def idle_of(name: str) -> IdleTimes:
    window = sample(name)
    steps = find_steps(window)
    return find_idle(window, steps, find_syncs(window, steps))


@pytest.mark.parametrize("name", SAMPLES)
def test_steps_are_the_profilers_and_parts_of_idle_time_sum_exactly(name: str) -> None:
    steps = find_steps(sample(name))
    assert steps.number.tolist() == [4, 5, 6, 7]
    found = idle_of(name)
    assert (found.cause_ns.sum(axis=-1) == found.idle_ns).all()
    assert (found.busy_ns + found.idle_ns == found.end_ns - found.start_ns).all()
    assert (found.busy_ns > 0).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prep2_sync", [("item", "main", 1.0)]),
        ("mid_sync", [("item", "main", 1.0)]),
        ("h2d_sync", [("h2d-pageable", "main", 1.0)]),
        ("mask_sync", [("nonzero", "main", 1.0), ("nonzero", "autograd", 1.0)]),
        ("data_sync", []),
        ("mid_free", []),
        ("h2d_free", []),
        ("gpt_sync", [("bool", "main", 1.0), ("item", "main", 1.0), ("item", "main", 1.0)]),
    ],
)
def test_the_waits_of_each_loop(name: str, expected: list[tuple[str, str, float]]) -> None:
    window = sample(name)
    sites = by_site(find_syncs(window, find_steps(window)))
    assert sorted((s.kind, s.thread, s.per_step) for s in sites) == sorted(expected)


def test_stacks_name_the_function_that_waits() -> None:
    window = sample("mid_sync_stack")
    (site,) = by_site(find_syncs(window, find_steps(window)))
    assert (site.file, site.line, site.function) == ("traces2.py", 24, "step")
    assert site.place == "aten::item in step (which begins at traces2.py:24)"


@pytest.mark.parametrize("name", ["prep2", "mid"])
def test_the_idle_time_of_a_sync_is_near_what_its_removal_gains(name: str) -> None:
    """Under the profiler the CPU is slower, so that it is a little more than measured."""
    found = idle_of(f"{name}_sync")
    blamed_ms = float(np.median(found.cause_ns[0, 1:, IdleCause.SYNC])) / 1e6
    gained_ms = truth(name)["with_ms"] - truth(name)["without_ms"]
    assert gained_ms * 0.95 <= blamed_ms <= gained_ms * 1.2


def test_the_syncs_of_a_launch_bound_loop_are_to_blame_for_next_to_nothing() -> None:
    found = idle_of("gpt_sync")
    total_ns = found.cause_ns.sum(axis=(0, 1))
    assert total_ns[IdleCause.SYNC] < 0.01 * found.idle_ns.sum()
    assert total_ns[IdleCause.LAUNCH] > 0.85 * found.idle_ns.sum()


def test_the_wait_before_the_first_launch_is_not_called_a_loaders() -> None:
    for name in ("data_sync", "data_sync_stack"):
        total_ns = idle_of(name).cause_ns.sum(axis=(0, 1))
        assert total_ns[IdleCause.SYNC] == total_ns[IdleCause.DATA] == 0
        assert total_ns[IdleCause.CPU_BEFORE_LAUNCH] > 0.85 * total_ns.sum()


def test_free_loops_keep_the_gpu_busy() -> None:
    for name in ("mid_free", "h2d_free", "data_free"):
        found = idle_of(name)
        assert (found.idle_ns[0, 1:] < 0.05 * (found.end_ns - found.start_ns)[0, 1:]).all()
