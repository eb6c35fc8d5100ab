"""Sites of waits: from stacks, from ranges and operators, and from the live detector."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_windows import Made
from waiting_loops import found, item, looped

from trainscope.analysis.live_sites import with_lines
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import by_site, find_syncs
from trainscope.trace.noted_waits import NotedWait
from trainscope.trace.syncs import SyncSite

FRAMES = (
    "train.py(77): <module>",
    "/home/me/project/train.py(24): step",
    "/usr/lib/python3.12/contextlib.py(10): inner",
    "torch/nn/modules/module.py(1700): _call_impl",
)


def test_the_site_is_the_users_innermost_function_and_its_line_is_the_functions_first() -> None:
    made = Made().range("ProfilerStep#0", 100, 1000).launch(10, 20, 600)
    made.frame(FRAMES[0], 0, 2000).frame("torch/profiler/profiler.py(9): step", 1, 5)
    for depth, name in enumerate(FRAMES[1:]):
        made.frame(name, 110 + depth, 900 - depth)
    made.frame("<built-in method item of Tensor object at 0x7f01>", 190, 650)
    item(made, 200, 612)
    made.frame("<built-in method item of Tensor object at 0x7f02>", 690, 800)
    item(made, 700, 730)
    syncs = found(made.window())
    site = syncs[0].site
    assert (site.file, site.line, site.function) == ("/home/me/project/train.py", 24, "step")
    assert site.line_is == "function"
    assert "aten::item in step (which begins at /home/me/project/train.py:24)" in site.place
    assert [(s.site.ordinal, s.site.alike) for s in syncs] == [(1, 2), (2, 2)]


def test_a_function_already_running_has_the_line_where_it_stood() -> None:
    made = Made().range("ProfilerStep#0", 100, 1000).frame(FRAMES[0], 0, 2000)
    made.frame("torch/profiler/profiler.py(9): step", 1, 5).launch(10, 20, 600)
    item(made, 200, 612)
    (sync,) = found(made.window())
    assert (sync.site.line, sync.site.line_is) == (77, "running")


def test_sites_without_stacks_are_told_by_ranges_and_the_operator_before() -> None:
    made = looped(2, ("forward", "metrics"))
    sites = by_site(found(made.window()))
    assert [site.place for site in sites] == [
        "aten::item in forward, after aten::mean",
        "aten::item in metrics, after aten::mean",
    ]
    assert [len(syncs) for syncs in sites.values()] == [2, 2]
    assert [site.per_step for site in sites] == [1.0, 1.0]


def test_a_line_in_a_loop_is_one_site_and_different_spots_are_several() -> None:
    made = looped(3, repeats=4)
    made.op("aten::max", 2390, 2391)
    (site,) = by_site(found(made.window()))
    assert (site.per_step, site.alike) == (4.0, 1)
    made = Made().range("ProfilerStep#0", 0, 1000).op("aten::mean", 10, 20)
    item(made, 30, 60)
    made.op("aten::max", 70, 80)
    item(made, 90, 120)
    assert [s.site.place for s in found(made.window())] == [
        "1st aten::item, after aten::mean",
        "2nd aten::item, after aten::max",
    ]


def test_two_spots_after_the_same_operator_are_told_by_the_one_before_it() -> None:
    made = Made()
    for begin in (0, 1000):
        made.range(f"ProfilerStep#{begin // 1000}", begin, begin + 999)
        for at, name in ((10, "aten::detach"), (300, "aten::abs"), (600, "aten::sum")):
            made.op(name, begin + at, begin + at + 5).op(
                "aten::max", begin + at + 10, begin + at + 15
            )
            item(made, begin + at + 20, begin + at + 50)
    sites = by_site(found(made.window()))
    assert [(site.ordinal, site.alike, site.per_step) for site in sites] == [
        (1, 3, 1.0),
        (2, 3, 1.0),
        (3, 3, 1.0),
    ]


def test_a_loop_whose_first_turn_comes_after_something_else_is_one_site() -> None:
    made = Made()
    for begin in (0, 1000):
        made.range(f"ProfilerStep#{begin // 1000}", begin, begin + 999)
        made.op("aten::sum", begin + 10, begin + 15)
        for at in (20, 120, 220):
            made.op("aten::norm", begin + at, begin + at + 5)
            item(made, begin + at + 10, begin + at + 50)
    (site,) = by_site(found(made.window()))
    assert (site.alike, site.per_step) == (1, 3.0)


def test_a_wait_in_backward_has_the_loops_range_and_says_its_thread() -> None:
    made = Made().range("ProfilerStep#0", 0, 1000).range("backward", 100, 900).launch(10, 20, 600)
    made.op("autograd::engine::evaluate_function: IndexBackward0", 150, 700, 1)
    made.op("IndexBackward0", 151, 699, 1)
    item(made, 160, 612, thread=1, inside="aten::nonzero")
    (sync,) = found(made.window())
    assert (sync.kind, sync.site.phase, sync.site.thread) == ("nonzero", "backward", "autograd")
    assert sync.site.place == "IndexBackward0 in backward, autograd thread"


LIVE = SyncSite(
    kind="item",
    code="TS101",
    explicit=False,
    allowed=None,
    file="/home/me/train.py",
    line=31,
    function="step",
    source="total += loss.item()",
    caller=None,
    via=None,
    phase="forward",
    thread="main",
    during="training",
    count=100,
    counted_internally=False,
    timed=100,
    blocked_ns_total=1,
    blocked_ns_median=1,
    advice="",
    steps=100,
)


def joined(made: Made, *live: SyncSite) -> list[str]:
    window = made.window()
    steps = find_steps(window)
    return [site.place for site in by_site(find_syncs(window, steps, live))]


def test_the_only_live_site_of_a_kind_and_phase_gives_the_line() -> None:
    assert joined(looped(2), LIVE, replace(LIVE, phase="optimizer", line=50)) == [
        "/home/me/train.py:31"
    ]
    assert joined(looped(2), replace(LIVE, kind="float")) == ["/home/me/train.py:31"]


@pytest.mark.parametrize(
    "live",
    [
        (LIVE, replace(LIVE, line=33, function="other")),
        (LIVE, replace(LIVE, line=33, count=50, steps=100)),
        (replace(LIVE, kind="synchronize"),),
        (replace(LIVE, phase="backward"),),
        (replace(LIVE, thread="autograd"),),
        (replace(LIVE, during="setup"),),
        (replace(LIVE, count=300),),
    ],
)
def test_a_site_stays_open_where_no_live_one_fits_or_several_can_be_meant(
    live: tuple[SyncSite, ...],
) -> None:
    assert joined(looped(2), *live) == ["aten::item in forward, after aten::mean"]


def test_lines_of_one_function_that_wait_once_a_step_are_taken_in_order() -> None:
    made = Made()
    for at in (0, 1000):
        made.range(f"step {at // 1000}", at, at + 1000).range("forward", at + 1, at + 999)
        made.op("aten::mean", at + 10, at + 20)
        item(made, at + 30, at + 60)
        made.op("aten::max", at + 70, at + 80)
        item(made, at + 90, at + 120)
    window = made.window()
    syncs = find_syncs(window, find_steps(window), (replace(LIVE, line=40), LIVE))
    assert [s.site.line for s in syncs] == [31, 40, 31, 40]
    assert syncs[0].site.live == LIVE
    looping = (replace(LIVE, line=40, count=200), LIVE)
    assert {s.site.line for s in find_syncs(window, find_steps(window), looping)} == {None}


def test_a_line_called_in_a_loop_joins_all_its_waits() -> None:
    assert joined(looped(2, repeats=4), replace(LIVE, count=400)) == ["/home/me/train.py:31"]


def test_a_line_that_waits_in_some_steps_only_is_joined_all_the_same() -> None:
    made = looped(1).range("step 1", 300, 390).range("step 2", 400, 490)
    window = made.window()
    live = replace(LIVE, count=33, steps=33)
    (sync,) = find_syncs(window, find_steps(window), (live,))
    assert (sync.site.per_step, sync.site.per_seen_step) == (1 / 3, 1.0)
    assert (sync.site.line, sync.site.line_is) == (31, "wait")


def test_spots_that_were_noted_at_one_line_are_one_site() -> None:
    """Of several tensors that one line moves, the first comes after other operators."""
    made = Made().range("ProfilerStep#0", 0, 1000)
    for at, name in ((10, "aten::detach"), (300, "aten::abs"), (600, "aten::sum")):
        made.op(name, at, at + 5).op("aten::max", at + 10, at + 15)
        item(made, at + 20, at + 50)
    spots = [sync.site for sync in found(made.window())]
    assert len(set(spots)) == 3
    noted = NotedWait("item", LIVE.file, LIVE.line, "main", 0, 0)
    (site,) = set(with_lines(spots, [noted] * 3, [LIVE]))
    assert site.place == "/home/me/train.py:31"


def test_without_operators_the_range_before_tells_where_it_is() -> None:
    made = Made()
    for step in range(2):
        at = step * 1000
        made.range(f"step {step}", at, at + 990)
        made.range("forward", at + 10, at + 300).range("attention", at + 20, at + 100)
        made.launch(at + 30, at + 40, at + 260)
        made.wait(at + 150, at + 260)  # inside forward, so what is before forward says nothing
        made.range("optimizer", at + 400, at + 500)
        made.launch(at + 410, at + 420, at + 600)
        made.wait(at + 550, at + 601)
    window = made.window(source="nsys")
    places = [site.place for site in by_site(find_syncs(window, find_steps(window)))]
    assert sorted(places) == [
        "cudaStreamSynchronize in forward, after attention",
        "cudaStreamSynchronize, after optimizer",
    ]


def test_the_range_before_is_of_the_same_step() -> None:
    made = Made()
    for step in range(2):
        at = step * 1000
        made.range(f"step {step}", at, at + 990)
        made.launch(at + 5, at + 10, at + 100)
        made.wait(at + 50, at + 101)
        made.range("optimizer", at + 400, at + 500)
    window = made.window(source="nsys")
    (site,) = by_site(find_syncs(window, find_steps(window)))
    assert site.place == "cudaStreamSynchronize"
