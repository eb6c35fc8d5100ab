from __future__ import annotations

from dataclasses import replace

from made_runs import INFO, MS, site, trace

from trainscope.analysis.sync_keys import keyed_syncs
from trainscope.analysis.syncs import (
    entries,
    per_step,
    unwanted_lines,
    waiting_lines,
)
from trainscope.analysis.told_sites import sites_of
from trainscope.report.build import build
from trainscope.trace.syncs import SyncSite

BY = "trainscope run: turns of the loop at train.py:9"


def test_a_line_is_put_together_over_phases_and_threads() -> None:
    sites = (
        site(
            phase="forward", count=30, timed=30, blocked_ns_total=60 * MS, blocked_ns_median=2 * MS
        ),
        site(phase=None, count=10, timed=10, blocked_ns_total=40 * MS, blocked_ns_median=4 * MS),
        site(kind="bool", count=1, timed=0, blocked_ns_total=0, blocked_ns_median=None),
    )
    item, boolean = waiting_lines(sites, steps=10)
    assert (item.count, item.per_step, item.blocked_ns_total) == (40, 4.0, 100 * MS)
    assert item.blocked_ns_median == 2.5 * MS  # (30 * 2 + 10 * 4) / 40
    assert item.blocked_ns_per_step == 10.0 * MS
    assert (boolean.count, boolean.per_step) == (1, 0.1)
    assert (boolean.blocked_ns_total, boolean.blocked_ns_per_step) == (None, None)


def test_lines_are_ordered_by_wait_per_step_then_count() -> None:
    untimed = {"timed": 0, "blocked_ns_total": 0, "blocked_ns_median": None}
    sites = (
        site(line=1, count=9, **untimed),
        site(line=2, count=10, **untimed),
        site(line=3, count=480, blocked_ns_median=1 * MS),
        site(line=4, count=48, blocked_ns_median=20 * MS),
    )
    assert [line.site.line for line in waiting_lines(sites, 480)] == [4, 3, 2, 1]


def test_only_unasked_waits_of_training_are_unwanted() -> None:
    sites = (
        site(line=1),
        site(line=2, explicit=True),
        site(line=3, allowed="checkpoint"),
        *(
            site(line=4 + i, during=during)
            for i, during in enumerate(("setup", "evaluation", "compilation", "teardown"))
        ),
    )
    made = trace(syncs=sites)
    assert [line.site.line for line in unwanted_lines(made, 480)] == [1]
    assert [line.site.line for line in unwanted_lines(made, 0)] == [1, 4, 7]


def test_waits_per_step_are_known_of_training_only() -> None:
    assert per_step(site(count=120), 480) == 0.25
    assert per_step(site(during="setup"), 480) is None
    assert per_step(site(), 0) is None


def test_steps_of_several_sites_are_told_only_where_their_numbers_leave_one_answer() -> None:
    def steps_of(*seen: int) -> int:
        parts = [site(phase=str(i), count=n, steps=n) for i, n in enumerate(seen)]
        (entry,) = entries(parts, 48)
        return entry.site.steps

    assert steps_of(48, 48) == 48
    assert steps_of(48, 1) == 48
    assert steps_of(50) == 50  # one site is left as it is
    assert steps_of(3, 3) == 0  # 3 to 6
    assert steps_of(3, 0) == 0  # not counted


def test_an_entry_is_of_one_thread_and_one_reason() -> None:
    parts = (
        site(),
        site(thread="autograd"),
        site(during="evaluation"),
        site(allowed="checkpoint"),
        site(function="another"),
    )
    assert [entry.site.count for entry in entries(parts, 480)] == [960, 480, 480, 480]


def test_in_inferred_steps_only_equal_numbers_of_waits_tell_in_how_many_steps() -> None:
    sites = (
        site(line=1, count=93, steps=72),  # once a turn: in some steps twice, in others not
        site(line=2, count=26, steps=13),
        site(line=3, count=40, steps=40),
    )
    inferred = trace(syncs=sites)
    inferred = replace(inferred, info=inferred.info.model_copy(update={"counted_by": BY}))
    assert [line.steps for line in unwanted_lines(inferred, 93)] == [0, 40, 13]
    named = replace(inferred, info=inferred.info.model_copy(update={"counted_by": "scope.steps"}))
    assert [line.steps for line in unwanted_lines(named, 93)] == [72, 40, 13]


def test_a_line_missing_in_as_many_steps_as_it_was_seen_between_them_may_be_in_all() -> None:
    sites = (
        site(line=1, count=50, steps=25),
        site(line=1, count=2, during="between"),
        site(line=2, count=4, steps=4),
        site(line=2, count=1, during="between"),
    )
    info = trace().info.model_copy(update={"counted_by": BY})
    found = {
        line.site.line: line.steps for line in unwanted_lines(trace(info=info, syncs=sites), 26)
    }
    assert found == {1: 0, 2: 4}


def test_where_it_is_in_doubt_what_a_step_is_no_wait_is_said_to_come_so_often_a_step() -> None:
    info = trace().info.model_copy(update={"counted_by": "cannot tell: backwards in two loops"})
    doubtful = trace(info=info, syncs=(site(steps=4), site(line=5, during="setup")))
    (line,) = unwanted_lines(doubtful, 4)
    assert (line.count, line.per_step, line.steps, line.blocked_ns_per_step) == (480, None, 0, None)
    assert [each.per_step for each in keyed_syncs(doubtful)] == [None]
    shown = {sync.line: (sync.per_step, sync.steps) for sync in build(doubtful).syncs}
    assert shown == {42: (None, None), 5: (None, None)}


def test_with_no_step_seen_no_line_was_before_the_first() -> None:
    before = site(during="setup", source="loss.item()", phase=None, advice="nothing to do")
    with_steps, without = trace(syncs=(before,)), trace([], syncs=(before,))
    assert [each.advice for each in sites_of(with_steps, 480)] == ["nothing to do"]
    (line,) = unwanted_lines(without, 0)
    words = "keep the value on the GPU, and read it only on the steps that use it"
    assert line.site.advice.startswith(words)
    assert keyed_syncs(without)[0].advice == line.site.advice == build(without).syncs[0].advice


def test_the_first_batch_of_an_evaluation_is_told_with_its_others() -> None:
    """It waits before the loop is known to evaluate, so in the step before or between steps."""

    def told(*sites: SyncSite) -> list[tuple[str, int]]:
        info = INFO.model_copy(update={"counted_by": BY})
        return [(s.during, s.count) for s in sites_of(trace(syncs=sites, info=info), 480)]

    first = site(phase=None, count=1, steps=1)
    later = site(phase=None, count=11, during="evaluation", steps=0)
    between = site(phase=None, count=2, during="between", steps=0)
    of_all = [("evaluation", 11), ("evaluation", 1), ("evaluation", 2)]
    assert told(later, first, between) == of_all
    # a line that both train with
    often = site(phase=None, count=9, steps=9)
    assert told(later, often, between) == [("evaluation", 11), ("training", 9), ("between", 2)]
    uncounted = site(phase=None, count=9, steps=0)
    assert told(later, uncounted) == [("evaluation", 11), ("training", 9)]
    # another place of a library, behind the same line
    elsewhere = replace(first, via="trainer:9 log")
    assert told(later, elsewhere) == [("evaluation", 11), ("training", 1)]
