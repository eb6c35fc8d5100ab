"""The table of sites: one record a site, exact counts, bounded memory."""

from __future__ import annotations

import dataclasses
import os
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any

import pytest

from trainscope.sync import sites as module
from trainscope.sync.site_counts import SAMPLES
from trainscope.sync.sites import Sites
from trainscope.trace.syncs import SyncSite

HERE = __file__
PURELIB = sysconfig.get_paths()["purelib"]


def wait(sites: Sites, kind: str = "item", **given: Any) -> bool:
    words = {"phase": "forward", "thread": "main", "during": "training", **given}
    return sites.record(kind, sys._getframe(1), **words)  # type: ignore[arg-type]


def test_one_site_with_all_its_facts() -> None:
    sites = Sites()
    for blocked_ns, step in ((30, 6), (10, 6), (20, 7)):
        new = wait(sites, blocked_ns=blocked_ns, step=step)  # the line
        assert new is (blocked_ns == 30)
    (site,) = sites.snapshot()
    line = sys._getframe(0).f_lineno - 3
    facts = dataclasses.asdict(site)
    # pytest is a library; a worker of pytest-xdist was started from a <string>
    assert (facts.pop("caller") or "<string>:").startswith("<string>:")
    assert facts == {
        "kind": "item", "code": "TS101", "explicit": False, "allowed": None,
        "file": HERE, "line": line, "function": "test_one_site_with_all_its_facts",
        "source": "new = wait(sites, blocked_ns=blocked_ns, step=step)  # the line",
        "via": None, "vias": (), "phase": "forward", "thread": "main", "during": "training",
        "count": 3, "counted_internally": False, "steps": 2, "timed": 3,
        "blocked_ns_total": 60, "blocked_ns_median": 20, "advice": site.advice,
    }  # fmt: skip
    assert site.advice.startswith("keep the value on the GPU")


def test_kind_phase_thread_during_and_reason_tell_sites_apart() -> None:
    sites = Sites()
    variants: list[dict[str, object]] = [
        {}, {"phase": None}, {"thread": "autograd"}, {"during": "evaluation"},
        {"allowed": "checkpoint"},
    ]  # fmt: skip
    for _ in range(2):
        for given in variants:
            for kind in ("item", "synchronize"):
                wait(sites, kind, **given)
    found = sites.snapshot()
    assert len(found) == 10
    assert {site.count for site in found} == {2}
    assert {(s.kind, s.explicit) for s in found} == {("item", False), ("synchronize", True)}


def test_order_is_by_count_then_file_then_line() -> None:
    sites = Sites()
    wait(sites, "item")
    first = sys._getframe(0).f_lineno
    wait(sites, "item")
    for _ in range(3):
        wait(sites, "bool")
    lines = [(site.count, site.line - first) for site in sites.snapshot()]
    assert lines == [(3, 3), (1, -1), (1, 1)]


def test_a_print_is_counted_once_and_says_so() -> None:
    sites = Sites()
    wait(sites, "repr", internal=True, blocked_ns=5)
    (site,) = sites.snapshot()
    assert (site.count, site.counted_internally) == (1, True)


def test_each_library_frame_that_waits_for_one_line_has_its_own_count() -> None:
    """As all that a trainer waits for is at the user's ``trainer.train()``."""
    wait_in: dict[str, Any] = {}
    source = "def train(wait, often):\n for _ in range(often): wait()\n wait()\n"
    exec(compile(source, os.path.join(PURELIB, "trainer.py"), "exec"), wait_in)

    def seen(waits_of: Callable[[Sites], None]) -> SyncSite:
        sites = Sites()
        waits_of(sites)
        (site,) = sites.snapshot()
        return site

    def wait_of(sites: Sites) -> Callable[[], bool]:
        return lambda: sites.record(
            "item", sys._getframe(1), phase=None, thread="main", during="training"
        )

    several = seen(lambda sites: wait_in["train"](wait_of(sites), 4))
    assert several.count == 5
    assert several.via == "trainer:2 train"
    assert several.vias == (("trainer:2 train", 4), ("trainer:3 train", 1))
    one = seen(lambda sites: wait_in["train"](wait_of(sites), 0))
    assert (one.count, one.via, one.vias) == (1, "trainer:3 train", ())


def test_an_untimed_wait_has_no_median() -> None:
    sites = Sites()
    wait(sites, "nonzero")
    (site,) = sites.snapshot()
    assert (site.timed, site.blocked_ns_total, site.blocked_ns_median) == (0, 0, None)


def test_the_sample_is_bounded_and_spans_the_whole_run() -> None:
    sites = Sites()
    for blocked_ns in range(100_000):
        wait(sites, blocked_ns=blocked_ns)
    (record,) = sites._counts.values()
    assert len(record.samples) <= SAMPLES
    assert record.samples == list(range(0, 100_000, record.stride))
    (site,) = sites.snapshot()
    assert site.timed == 100_000
    assert site.blocked_ns_total == sum(range(100_000))
    assert site.blocked_ns_median == pytest.approx(50_000, rel=0.01)


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SITES", 3)
    sites = Sites()
    for number in range(5):
        for _ in range(2):
            wait(sites, thread=f"worker {number}")
    assert [site.thread for site in sites.snapshot()] == ["worker 0", "worker 1", "worker 2"]
    assert sites.overflow == 4


def test_races_are_no_syncs() -> None:
    sites = Sites()
    wait(sites, "race")
    assert sites.snapshot() == ()
    (race,) = sites.races()
    assert (race.code, race.kind, race.explicit) == ("TS501", "race", False)
    assert race.advice == (
        "a value is read before its non_blocking copy has landed: wait for an event recorded "
        "after the copy, then read"
    )


def test_a_wait_with_no_python_frame() -> None:
    sites = Sites()
    sites.record("item", None, phase=None, thread="x", during="training")
    (site,) = sites.snapshot()
    assert (site.file, site.line, site.source, site.caller) == ("<no Python frame>", 0, "", None)


def test_threads_lose_no_count() -> None:
    sites = Sites()

    def many() -> None:
        for _ in range(5_000):
            wait(sites, blocked_ns=1)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (site,) = sites.snapshot()
    assert (site.count, site.timed, site.blocked_ns_total) == (20_000, 20_000, 20_000)


def test_code_that_dynamo_resumed_keeps_the_function_s_name() -> None:
    sites = Sites()
    source = "def torch_dynamo_resume_in_train_at_12(wait, sites):\n    wait(sites)\n"
    names: dict[str, object] = {}
    exec(compile(source, "resumed.py", "exec"), names)
    names["torch_dynamo_resume_in_train_at_12"](wait, sites)  # type: ignore[operator]
    (site,) = sites.snapshot()
    assert site.function == "train"


# ---- a set-up that turns out to have held the first turn ----------------------------------------
SETUP: dict[str, Any] = {"phase": None, "during": "setup"}


def followed() -> tuple[Sites, list[str]]:
    """A table that follows, and the place that it is told next: put one in before each wait."""
    sites, places = Sites(), [""]
    sites.follow(lambda frame: places[0])
    return sites, places


def test_what_is_claimed_is_training_s_and_the_rest_stays_set_up() -> None:
    sites, places = followed()
    for place, blocked_ns in (("before", 10), ("turn", 20), ("before", 30), ("turn", 60)):
        places[0] = place
        wait(sites, **SETUP, blocked_ns=blocked_ns)
    (site,) = sites.snapshot()  # one site till it is known better
    assert (site.during, site.count, site.blocked_ns_median) == ("setup", 4, 25)
    sites.claim(lambda place: place == "turn")
    assert [(s.during, s.count, s.timed, s.blocked_ns_total) for s in sites.snapshot()] == [
        ("setup", 2, 2, 40),
        ("training", 2, 2, 80),
    ]


def test_what_is_claimed_is_one_with_the_same_line_in_the_phase_of_later_turns() -> None:
    sites, _places = followed()

    def turn(**given: Any) -> None:
        wait(sites, "h2d-pageable", **given)
        wait(sites, "item", **given)

    turn(**SETUP, blocked_ns=1)
    sites.claim(lambda place: True)
    assert [(s.kind, s.phase, s.count) for s in sites.snapshot()] == [
        ("h2d-pageable", None, 1),
        ("item", None, 1),
    ]
    for _ in range(11):
        turn(phase="h2d", blocked_ns=5)
    turn(phase="forward", blocked_ns=5)
    assert [(s.phase, s.during, s.count, s.blocked_ns_total) for s in sites.snapshot()] == [
        ("h2d", "training", 12, 56),
        ("h2d", "training", 12, 56),
        ("forward", "training", 1, 5),
        ("forward", "training", 1, 5),
    ]
    turn(phase=None, blocked_ns=7)  # the line itself, in no phase
    assert [(s.phase, s.count) for s in sites.snapshot()][-4:] == [
        (None, 2), (None, 2), ("forward", 1), ("forward", 1),
    ]  # fmt: skip


def test_what_several_places_of_a_line_waited_for_in_the_first_turn_is_of_one_step() -> None:
    """As of ``x, y = x.to(device), y.to(device)``."""
    sites, places = followed()

    def line(**given: Any) -> None:
        for place in ("x", "y"):
            places[0] = place
            wait(sites, **given)

    line(**SETUP)
    sites.claim(lambda place: True)
    for step in (1, 2, 3):
        line(step=step)
    (site,) = sites.snapshot()
    assert (site.during, site.count, site.steps) == ("training", 8, 4)


def test_only_the_set_up_of_the_loop_s_thread_is_followed() -> None:
    sites, _places = followed()
    others: list[dict[str, Any]] = [{"during": "evaluation"}, {"during": "training"}]
    for given in (*others, {**SETUP, "thread": "pin"}):
        wait(sites, **given)
    sites.claim(lambda place: True)
    assert sorted((s.during, s.thread) for s in sites.snapshot()) == [
        ("evaluation", "main"),
        ("setup", "pin"),
        ("training", "main"),
    ]
    wait(sites, **SETUP)  # followed no more
    assert [s.count for s in sites.snapshot() if s.during == "setup" and s.thread == "main"] == [1]


def test_what_is_followed_is_bounded_and_the_oldest_stays_set_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_FOLLOWED", 3)
    sites, places = followed()
    for number in range(10):
        places[0] = str(number)
        wait(sites, **SETUP, blocked_ns=1)
    assert len(sites._followed) == 3
    sites.claim(lambda place: True)
    assert [(s.during, s.count) for s in sites.snapshot()] == [("setup", 7), ("training", 3)]


def test_a_site_followed_in_several_places_is_new_once() -> None:
    sites, places = followed()
    new = []
    for place in ("a", "b", "a"):
        places[0] = place
        new.append(wait(sites, **SETUP))
    assert new == [True, False, False]


def test_counts_put_together_keep_a_bounded_sample_of_both() -> None:
    sites, places = followed()
    for place, blocked_ns in (("before", 1), ("turn", 3)):
        places[0] = place
        for _ in range(1000):
            wait(sites, **SETUP, blocked_ns=blocked_ns)
    (site,) = sites.snapshot()
    assert (site.timed, site.blocked_ns_total, site.blocked_ns_median) == (2000, 4000, 2)
