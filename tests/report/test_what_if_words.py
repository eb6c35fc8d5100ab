"""How a report names the sites of a replay, and says how far it is to be trusted."""

from __future__ import annotations

from dataclasses import replace

from made_runs import trace

from trainscope.analysis.replay.answer import Removal, WhatIf
from trainscope.analysis.window_site import WindowSite
from trainscope.report import text
from trainscope.report.build import build
from trainscope.report.build_what_if import as_what_if
from trainscope.report.text_what_if import taken_out

SITE = WindowSite(
    "tolist", "/w/train.py", 25, "wait", "f", None, (), "aten::item", "", "main", 1, 1, True
)
SIZE = replace(SITE, kind="size-readback")
OTHER = replace(SITE, line=54)


def replay(*sites: WindowSite, cannot_tell: str | None = None) -> WhatIf:
    alone = tuple(
        Removal((site,), "one", 9e6, 1.1, (1.0, 1.2), ("nothing: it is gone",)) for site in sites
    )
    return WhatIf(10e6, None, 10e6, -0.042, True, alone, cannot_tell, ())


def test_a_line_that_waits_in_two_ways_is_told_with_the_kind_of_each() -> None:
    told = as_what_if(replay(SITE, SIZE, OTHER), "/w")
    assert [each.sites for each in told.removals] == [
        ["train.py:25 (tolist)"],
        ["train.py:25 (size-readback)"],
        ["train.py:54"],
    ]


def test_the_row_of_several_lines_says_why_it_is_there() -> None:
    found = replay(SITE, OTHER)
    few = Removal((SITE, OTHER), "smallest set", 8e6, 1.2, (1.1, 1.3), ("nothing: it is gone",))
    told = as_what_if(replace(found, removals=(*found.removals, few)), "/w")
    assert [taken_out(each) for each in told.removals] == [
        "train.py:25",
        "train.py:54",
        "the fewest that keep most of it: train.py:25, train.py:54",
    ]


def test_how_far_a_replay_is_off_is_told_once() -> None:
    off = "replayed as recorded the steps come out 4.2% shorter than they were"
    why_not = f"{off}, so something in them is not understood"
    for found in (replay(SITE), replace(replay(cannot_tell=why_not), drifted=True)):
        report = build(trace()).model_copy(update={"what_if": as_what_if(found, "/w")})
        shown = " ".join(text.render(report, width=80).split())
        assert shown.count(off) == 1
        assert "calibrated by the step of 10.0 ms with no profiler on" in shown
        ways = "a wait taken out is replaced by nothing: it is gone"
        assert (ways in shown) == (found.cannot_tell is None)
