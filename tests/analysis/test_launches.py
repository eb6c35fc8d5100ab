"""CPU lead, queue depth, tiny kernels and their chains."""

from __future__ import annotations

import numpy as np
import pytest
from made_windows import Made, empty_window
from sample_traces import sample

from trainscope.analysis.launch_chains import chain_advice, launch_chains
from trainscope.analysis.launches import first_launch_ns, launch_times, queue_depth
from trainscope.analysis.window_steps import find_steps
from trainscope.trace.window import CopyKind, Window

US = 1000


def times_of(window: Window):
    return launch_times(window, find_steps(window))


def test_the_lead_is_from_the_end_of_the_call_to_the_start_of_the_op() -> None:
    made = Made().range("step 0", 0, 100).range("step 1", 100, 200)
    made.launch(0, 3, 50, cost=5).launch(10, 50, 90, cost=5).launch(20, 120, 150, cost=5)
    made.launch(110, 215, 220, cost=5).kernel(300, 310).launch(400, 410, 420)
    found = times_of(made.window())
    assert found.lead_ns.tolist() == [-2, 35, 95, 100]
    assert found.lead_op.tolist() == [0, 1, 2, 3]
    assert found.lead_median_ns.tolist() == [35, 100]
    assert (found.launches, found.kernels, found.steps) == (4, 4, 2)
    assert found.launch_call_ns == 20
    assert found.launch_share == 0.1


def test_a_step_s_first_launch_is_the_first_call_with_gpu_work() -> None:
    made = Made().range("step 0", 0, 100).range("step 1", 100, 200).range("step 2", 200, 300)
    made.call("cudaStreamIsCapturing", 5, 6)
    made.launch(30, 50, 60, cost=5).launch(20, 40, 45, cost=5).launch(210, 215, 220, cost=5)
    window = made.window()
    assert first_launch_ns(window, find_steps(window)).tolist() == [20, -1, 10]
    assert first_launch_ns(empty_window(), find_steps(empty_window())).tolist() == []


def test_tiny_kernels_take_less_than_their_launch() -> None:
    made = Made().range("step 0", 0, 100 * US)
    for at, length in ((0, 2), (20, 7), (40, 8), (60, 30)):
        made.launch(at * US, at * US + 10, at * US + 10 + length * US)
    found = times_of(made.window())
    assert (found.tiny_kernels, found.tiny_ns, found.kernel_ns) == (2, 9 * US, 47 * US)
    assert found.tiny_share == 0.5


def test_a_copys_call_is_no_cost_of_launching_since_it_may_wait() -> None:
    made = Made().range("step 0", 0, 1000).launch(0, 10, 20, cost=5)
    copy = made.call("cudaMemcpyAsync", 30, 900)
    made.copy(600, 890, copy, CopyKind.H2D)
    found = times_of(made.window())
    assert (found.launches, found.launch_call_ns, found.launch_share) == (2, 5, 0.005)


def test_the_replay_of_a_graph_is_one_launch() -> None:
    made = Made().range("step 0", 0, 1000)
    graph = made.call("cudaGraphLaunch", 0, 10)
    made.kernel(20, 30, graph).kernel(30, 60, graph).kernel(60, 90, graph)
    found = times_of(made.window())
    assert (found.launches, found.kernels, found.launch_call_ns) == (1, 3, 10)
    assert found.lead_ns.tolist() == [10, 20, 50]


def test_queue_depth_counts_what_was_given_and_has_not_begun() -> None:
    made = Made().launch(0, 3, 50).launch(10, 50, 90).launch(20, 90, 150).launch(30, 150, 160)
    made.launch(40, 41, 60, device=1).kernel(200, 210)
    depth = queue_depth(made.window(), 0)
    assert depth.time_ns.tolist() == [15, 25, 35, 50, 90, 150]
    assert depth.depth.tolist() == [1, 2, 3, 2, 1, 0]
    assert depth.deepest == 3
    assert depth.at(np.array([0, 15, 40, 89, 500])).tolist() == [0, 1, 3, 2, 0]
    assert depth.share_empty(0, 200) == 1 - 135 / 200
    assert depth.share_empty(5, 5) is None


def chained() -> Made:
    """Two steps: three tiny kernels, a long one, two tiny ones."""
    made = Made()
    for step in range(2):
        at = step * 1000 * US
        made.range(f"step {step}", at, at + 900 * US).range("forward", at + 1, at + 899 * US)
        for place, (name, length) in enumerate(
            (("mul", 2), ("mul", 2), ("add", 3), ("mm", 100), ("mul", 2), ("add", 2))
        ):
            begin = at + place * 100 * US + 10
            made.op(f"aten::{name}", begin, begin + 20 * US)
            made.launch(begin + 5, begin + 10 * US, begin + 10 * US + length * US)
    return made


def test_a_chain_is_three_tiny_kernels_or_more_in_a_row_in_one_step() -> None:
    made = chained()
    window = made.window()
    (chain,) = launch_chains(window, find_steps(window))
    assert chain.operators == (("aten::mul", 2), ("aten::add", 1))
    assert (chain.kernels, chain.times, chain.gpu_ns) == (3, 2, 14 * US)
    assert chain.words == "aten::mul x2 → aten::add"
    assert chain.inside == "forward"
    assert "torch.compile" in chain_advice(chain)


@pytest.mark.parametrize(
    ("inside", "operators", "words"),
    [
        ("Optimizer.step#Adam.step", ("aten::add",), "fused=True"),
        ("Optimizer.step#RMSprop.step", ("aten::_foreach_add_",), "torch.compile its step, or an"),
        ("Optimizer.step#SparseAdam.step", ("aten::coalesce",), "will do, on dense gradients"),
        ("", ("aten::_foreach_add_", "aten::_foreach_mul_"), "fused=True"),
        ("", ("autograd::engine::evaluate_function: MulBackward0",), "backward"),
        (
            "",
            ("autograd::engine::evaluate_function: CompiledFunctionBackward", "aten::add_"),
            "compiled already",
        ),
        ("", ("aten::mul", "aten::add"), "element-wise"),
    ],
)
def test_advice_names_what_launches_fewer(
    inside: str, operators: tuple[str, ...], words: str
) -> None:
    made = Made()
    if inside:
        made.range(inside, 0, 900 * US)
    for place in range(6):
        begin = place * 20 * US + 10
        made.op(operators[place % len(operators)], begin, begin + 10 * US)
        made.launch(begin + 5, begin + 8 * US, begin + 9 * US)
    window = made.window()
    (chain,) = launch_chains(window, find_steps(window))
    assert words in chain_advice(chain)


def test_a_long_chain_is_named_by_its_ends() -> None:
    made = Made()
    for place in range(12):
        made.op(f"aten::op{place}", place * 100, place * 100 + 50)
        made.launch(place * 100 + 5, place * 100 + 60, place * 100 + 70)
    window = made.window()
    (chain,) = launch_chains(window, find_steps(window))
    assert chain.words == ("aten::op0 → aten::op1 → aten::op2 → aten::op3 → (7 more) → aten::op11")


@pytest.mark.parametrize(
    ("between", "kernels"), [("the end of a range", 5), ("a read", 5), ("a copy on the GPU", 6)]
)
def test_what_cannot_become_one_kernel_is_no_chain(between: str, kernels: int) -> None:
    """What an agent runs, reads and learns from was told as one chain in forward."""
    made = Made().range("forward", 0, (450 if between == "the end of a range" else 900) * US)
    for place in range(6):
        begin = place * 100 * US + 10
        made.op("aten::mul", begin, begin + 20 * US)
        made.launch(begin + 5, begin + 10 * US, begin + 12 * US)
    if between != "the end of a range":
        kind = CopyKind.D2H if between == "a read" else CopyKind.D2D
        correlation = made.call("cudaMemcpyAsync", 450 * US, 451 * US)
        made.copy(452 * US, 453 * US, correlation, kind)
    window = made.window()
    chains = launch_chains(window, find_steps(window))
    assert [(chain.kernels, chain.inside) for chain in chains] == [(kernels, "forward")]


def test_nothing_launched_gives_nothing_and_shares_are_not_known() -> None:
    window = empty_window()
    found = times_of(window)
    assert (found.launches, found.kernels) == (0, 0)
    assert (found.launch_share, found.tiny_share) == (None, None)
    assert launch_chains(window, find_steps(window)) == ()
    assert queue_depth(window, 0).share_empty(0, 10) == 1.0


def test_a_launch_bound_loop_is_told_from_one_that_is_ahead() -> None:
    bound, ahead = sample("gpt_sync"), sample("mid_free")
    few, many = times_of(ahead), times_of(bound)
    assert many.tiny_share is not None
    assert many.tiny_share > 0.5
    assert few.lead_median_ns[-1] > 10_000 * US
    assert many.lead_median_ns[-1] < 20 * US
    deep = queue_depth(ahead, 0)
    assert deep.deepest > 100
    empty = queue_depth(bound, 0).share_empty(int(bound.gpu.start_ns[0]), int(bound.gpu.end_ns[-1]))
    assert empty is not None
    assert empty > 0.8
