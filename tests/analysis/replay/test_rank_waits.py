"""What a collective waited for other ranks, and loops on two GPUs that were really freed.

The folder ``ddp`` holds traces of rank 0 of ``tests/bench/replay_loops_ddp.py``, recorded on two
H200 by ``tests/bench/replay_record.py``, and the step times measured with no profiler on.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_windows import Made
from sample_traces import DDP

from trainscope.analysis.replay.rank_waits import rank_waits_ns
from trainscope.analysis.replay.what_if import MeasuredWait, what_if
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import find_syncs
from trainscope.trace.torch_trace import read_torch_trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MS = 1_000_000


def collectives(steps: list[list[int]], names: tuple[str, ...] = (ALL_REDUCE,) * 2) -> list[float]:
    """The waits of collectives with these lengths, each behind a kernel of 70 ns."""
    made, at = Made(), 0
    for number, lengths in enumerate(steps):
        made.range(f"ProfilerStep#{number}", at, at + 10_000)
        made.launch(at + 10, at + 20, at + 90)
        for place, length in enumerate(lengths):
            at_call = at + 100 + 1000 * place
            name = names[place % len(names)]
            made.launch(at_call, at_call + 10, at_call + 10 + length, name=name, stream=17)
        at += 10_000
    window = made.window()
    found = rank_waits_ns(window, find_steps(window).of_ops(window))
    assert (found[window.gpu.stream == 7] == 0).all()
    return found[window.gpu.stream == 17].tolist()


def test_the_wait_is_what_is_above_the_shortest_at_the_same_place_in_a_step() -> None:
    assert collectives([[30, 200], [90, 150], [30, 150]]) == [0, 50, 60, 0, 0, 0]


def test_nothing_is_known_of_one_step_or_of_steps_with_other_collectives() -> None:
    assert collectives([[30, 200]]) == [0, 0]
    assert collectives([[30, 200], [90]]) == [0, 0, 0]


def test_what_is_no_collective_waits_for_no_rank() -> None:
    names = (ALL_REDUCE, "gemm")
    assert collectives([[30, 200], [90, 150]], names) == [0, 0, 60, 0]


@pytest.mark.parametrize("name", ["ddp_item_sync", "ddp_mean_loss_sync_stack"])
def test_the_gain_on_two_gpus_is_foretold(name: str) -> None:
    truth = json.loads((DDP / "truth.json").read_text())[name.split("_sync")[0]]
    (wait,) = truth["waits"]
    median_ms, mean_ms = wait["blocked_ms_median"], wait["blocked_ms_mean"]
    window = read_torch_trace(DDP / f"{name}.json.gz")
    steps = find_steps(window)
    syncs = find_syncs(window, steps)
    found = what_if(
        window,
        steps,
        syncs,
        step_ns=truth["with_ms"]["median"] * MS,
        measured_wait=lambda _: MeasuredWait(median_ms * MS, abs(mean_ms - median_ms) * MS),
    )
    assert found is not None
    assert found.cannot_tell is None
    ratio = truth["removed"]["all"]["ratio"]
    assert ratio["p10"] * 0.99 <= found.removals[0].speedup <= ratio["p90"] * 1.01
    assert any("other ranks" in words for words in found.assumptions)


def test_without_marks_a_step_is_from_one_optimizer_step_to_the_next() -> None:
    window = read_torch_trace(DDP / "ddp_item_sync.json.gz")
    marks = [place for place, name in enumerate(window.names) if name.startswith("ProfilerStep")]
    bare = replace(window, ranges=window.ranges.take(~np.isin(window.ranges.name_id, marks)))
    steps, marked = find_steps(bare), find_steps(window)
    assert len(steps) == 3
    found = what_if(bare, steps, find_syncs(bare, steps))
    known = what_if(window, marked, find_syncs(window, marked))
    assert found is not None
    assert known is not None
    assert found.replayed_step_ns == pytest.approx(known.replayed_step_ns, rel=0.02)


def test_where_another_rank_came_late_the_collective_s_wait_is_seen() -> None:
    window = read_torch_trace(DDP / "ddp_mean_loss_sync_stack.json.gz")
    steps = find_steps(window)
    waits_ns = rank_waits_ns(window, steps.of_ops(window))
    # two of the four steps waited 2.3 and 1.9 ms in the first collective
    assert np.sort(waits_ns)[-2:] == pytest.approx([1.914 * MS, 2.320 * MS], rel=1e-2)
