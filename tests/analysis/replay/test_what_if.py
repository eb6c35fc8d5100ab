"""What-if on windows made by hand, and on recorded loops whose true gain was measured."""

import json
import re
from pathlib import Path

import pytest
from made_windows import Made
from sample_traces import FOLDER as TRACES

from trainscope.analysis.replay.subsets import smallest_set
from trainscope.analysis.replay.what_if import Removal, WhatIf, what_if
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import find_syncs
from trainscope.trace.torch_trace import read_torch_trace
from trainscope.trace.window import CopyKind, Memory, Window

MS = 1_000_000
TRUTH = TRACES / "truth.json"
needs_samples = pytest.mark.skipif(not TRUTH.exists(), reason="the sample traces are not here")


def replayed(window: Window, **more) -> WhatIf | None:
    steps = find_steps(window)
    return what_if(window, steps, find_syncs(window, steps), **more)


def reading_loop(turns: int = 4, after: str = "aten::mean") -> Made:
    """Each turn: 2 ms of CPU work, a kernel of 3 ms, a read that waits for it."""
    made = Made()
    for turn in range(turns):
        at = turn * 6 * MS
        made.range(f"ProfilerStep#{turn}", at, at + 6 * MS)
        begin = at + 2 * MS
        made.op(after, begin - 1000, begin + 20_000)
        made.launch(begin, begin + 10_000, begin + 3 * MS, cost=6000)
        made.op("aten::item", begin + 30_000, begin + 3 * MS + 40_000)
        copy = made.call("cudaMemcpyAsync", begin + 40_000, begin + 50_000)
        made.copy(begin + 3 * MS, begin + 3 * MS + 2000, copy, CopyKind.D2H, Memory.PINNED)
        made.wait(begin + 51_000, begin + 3 * MS + 12_000)
    return made


def test_a_read_after_long_work_costs_the_cpu_time_that_the_gpu_then_lacks() -> None:
    found = replayed(reading_loop().window())
    assert found is not None
    assert found.drift == pytest.approx(0, abs=1e-3)
    # 2.96 ms of CPU work in all turn into less than the GPU's 3 ms
    assert found.replayed_step_ns == pytest.approx(5.9 * MS, rel=0.03)
    assert [removal.what for removal in found.removals] == ["all", "one"]
    assert found.removals[0].step_ns == pytest.approx(2.99 * MS, rel=0.02)


def test_a_necessary_sync_is_kept() -> None:
    scaler = reading_loop(after="aten::_amp_foreach_non_finite_check_and_unscale_").window()
    found = replayed(scaler)
    assert found is not None
    assert (found.removals, len(found.kept)) == ((), 1)
    kept = replayed(reading_loop().window(), necessary=lambda site: site.kind == "item")
    assert kept is not None
    assert (kept.removals, len(kept.kept)) == ((), 1)


@pytest.mark.parametrize(
    ("step_ms", "reason"),
    [
        (1.5, r"the step time given, 1\.5 ms, is less than the GPU work of a step, 2\.99 ms"),
        (60.0, r"the replayed step is \d+\.\d% shorter than the measured one"),
    ],
)
def test_a_step_time_of_another_loop_is_refused(step_ms: float, reason: str) -> None:
    found = replayed(reading_loop().window(), step_ns=step_ms * MS)
    assert found is not None
    assert found.removals == ()
    assert re.search(reason, found.cannot_tell or "")


def gain_without_and_with(window: Window, others_ns: list[float]) -> tuple[Removal, Removal]:
    """What all gain in steps of 6 ms, told without and with times of other steps."""
    usual = replayed(window, step_ns=6 * MS)
    uneven = replayed(window, step_ns=6 * MS, other_steps_ns=others_ns)
    assert usual is not None
    assert uneven is not None
    return usual.removals[0], uneven.removals[0]


def test_what_other_steps_would_gain_is_in_the_band() -> None:
    made = reading_loop()
    for turn in range(4):  # the CPU's 2 ms are operators': how fast is it without a profiler?
        at = turn * 6 * MS
        for begin in range(at + 5000, at + 2 * MS - 25_000, 20_000):
            made.op("aten::add", begin, begin + 19_000)
    one, other = gain_without_and_with(made.window(), [5.7 * MS, 6.4 * MS])
    assert other.speedup == one.speedup == pytest.approx(2.0, rel=0.02)
    assert one.band[0] > 1.94
    # a slower CPU: 3.4 ms of it instead of 6.4; a faster one: the GPU's 3 ms instead of 5.7
    assert other.band[0] == pytest.approx(6.4 / 3.4, rel=0.02)
    assert other.band[1] == one.band[1]


def test_the_gain_of_a_loop_that_the_gpu_never_limits_is_the_same_in_other_steps() -> None:
    made = Made()
    for turn in range(4):
        at = turn * 6 * MS
        made.range(f"ProfilerStep#{turn}", at, at + 6 * MS)
        for begin in range(at + 5000, at + 5 * MS - 25_000, 20_000):
            made.op("aten::add", begin, begin + 19_000)
        begin = at + 5 * MS
        made.op("aten::mean", begin, begin + 20_000)
        made.launch(begin, begin + 10_000, begin + 500_000, cost=6000)
        made.op("aten::item", begin + 30_000, begin + 540_000)
        copy = made.call("cudaMemcpyAsync", begin + 40_000, begin + 50_000)
        made.copy(begin + 500_000, begin + 502_000, copy, CopyKind.D2H, Memory.PINNED)
        made.wait(begin + 51_000, begin + 512_000)
    one, other = gain_without_and_with(made.window(), [5.7 * MS, 6.3 * MS])
    assert other.band == pytest.approx(one.band, rel=0.01)


def test_one_step_is_too_little() -> None:
    found = replayed(reading_loop(1).window())
    assert found is not None
    assert found.cannot_tell == "the window has 1 whole step, and a replay needs two or more"


def test_no_sync_no_steps_no_gpu_give_nothing() -> None:
    assert replayed(Made().window()) is None
    only_cpu = Made()
    for turn in range(3):
        only_cpu.range(f"ProfilerStep#{turn}", turn * MS, (turn + 1) * MS)
    assert replayed(only_cpu.window()) is None
    for turn in range(3):
        only_cpu.launch(turn * MS + 1000, turn * MS + 9000, turn * MS + 90_000)
    assert replayed(only_cpu.window()) is None


def test_the_smallest_set_is_found_from_all_removed() -> None:
    # alone each of 0 and 1 gains nothing, together all; 2 gains nothing at all
    def step_ns(removed: frozenset[int]) -> float:
        return 60.0 if {0, 1} <= removed else 100.0

    assert smallest_set([0, 1, 2], 100.0, step_ns) == {0, 1}
    assert smallest_set([0, 1], 100.0, lambda _: 100.0) == frozenset()


@needs_samples
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("prep2", 0.02), ("mid", 0.02), ("h2d", 0.02), ("gpt", 0.02), ("mask", 0.05)],
)
def test_measured_gains_are_foretold(name: str, tolerance: float) -> None:
    truth = json.loads(TRUTH.read_text())[name]
    window = read_torch_trace(TRACES / f"{name}_sync.json.gz")
    found = replayed(window, step_ns=truth["with_ms"] * MS)
    assert found is not None
    assert found.cannot_tell is None
    low, high = truth["ratio_p10_p90"]
    assert low * (1 - tolerance) <= found.removals[0].speedup <= high * (1 + tolerance)


@needs_samples
def test_without_any_sync_nothing_is_blamed() -> None:
    assert replayed(read_torch_trace(TRACES / "data_sync.json.gz"), step_ns=10.603 * MS) is None


@needs_samples
def test_without_a_step_time_a_launch_bound_loop_gets_no_single_number() -> None:
    found = replayed(read_torch_trace(TRACES / "mask_sync.json.gz"))
    assert found is not None
    assert not found.calibrated
    low, high = found.removals[0].band if found.removals else (1.0, 2.0)
    assert found.cannot_tell is not None or high / low < 1.12


@needs_samples
def test_the_replay_as_recorded_is_what_was_recorded() -> None:
    told = []
    for file in sorted(Path(TRACES).glob("*_sync.json.gz")):
        found = replayed(read_torch_trace(file))
        if found is not None:
            assert found.drift is not None, file.name
            assert abs(found.drift) < 0.005, file.name
            told.append(file.name)
    assert len(told) >= 5, told
