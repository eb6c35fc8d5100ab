from __future__ import annotations

from dataclasses import replace

import pytest
from made_runs import INFO, ITEM, full_trace, site, step_rows, trace

from trainscope.report.build import build
from trainscope.report.model import LeftOut, Spread
from trainscope.trace.captures import CaptureState
from trainscope.trace.counts import Counts


def test_steps_and_phases_are_exact() -> None:
    made = build(trace(step_rows(11, wall_us=tuple(range(20_000, 20_011)))))
    assert made.steps.count == 11
    assert made.steps.counted_by == "scope.steps"
    assert made.steps.left_out == LeftOut(warm_up=1, captured=0)
    assert made.steps.wall_ms == pytest.approx(Spread(median=20.0055, p10=20.0019, p90=20.0091))
    assert [(p.name, p.per_step_ms.median, p.where, p.steps) for p in made.phases] == [
        ("data", 1.0, "host", 10),
        ("forward", 12.0, "host", 10),
        ("backward", 5.0, "host", 10),
        ("optimizer", 2.0, "host", 10),
    ]
    assert made.phases[1].share == 120_000 / 200_055


def test_what_is_not_known_is_null() -> None:
    made = build(trace([], detector=None, counts=Counts()))
    assert (made.steps.wall_ms, made.steps.optimizer_steps) == (None, None)
    for name in ("idle", "what_if", "detector", "overhead", "capture", "metrics", "ranks"):
        assert getattr(made, name) is None, name
    untimed = site(timed=0, blocked_ns_total=0, blocked_ns_median=None)
    (sync,) = build(trace(syncs=(untimed,))).syncs
    assert (sync.blocked_ms_total, sync.blocked_ms_median, sync.gain_ms_per_step) == (
        None,
        None,
        None,
    )


def test_a_sync_is_told_as_it_was_seen_with_paths_below_the_program() -> None:
    (sync,) = build(trace(syncs=(ITEM,))).syncs
    assert (sync.file, sync.line, sync.caller) == ("train.py", 42, "train.py:80")
    assert (sync.count, sync.per_step, sync.timed) == (480, 1.0, 480)
    assert (sync.blocked_ms_total, sync.blocked_ms_median) == (5136.0, 10.7)
    (elsewhere,) = build(trace(syncs=(site(file="/home/me/project2/a.py"),))).syncs
    assert elsewhere.file == "/home/me/project2/a.py"


def test_overhead_is_ranges_and_all_else() -> None:
    counts = Counts(range_cost_ns=900.0, per_step_cost_ns=16_400.0)
    overhead = build(trace(counts=counts)).overhead
    assert overhead is not None
    assert overhead.per_step_us == 20.0  # 4 ranges of 0.9 and 16.4
    assert overhead.share == 20.0 / 20_400


def test_findings_are_the_unwanted_lines_then_races_gaps_and_captures() -> None:
    made = full_trace()
    assert made.detector is not None
    race = site(kind="race", line=90, count=2, source="use(x)", advice="wait for the copy's event")
    made = replace(made, detector=replace(made.detector, races=(race,)))
    findings = build(made).findings
    assert [(f.code, f.site, f.gain_ms_per_step) for f in findings] == [
        ("TS101", "train.py:42", None),
        ("TS102", "train.py:57", None),
        ("TS501", "train.py:90", None),
        ("TS502", None, None),
        ("TS505", None, None),
    ]
    assert findings[0].evidence == (
        "10.7 ms of every 20.4 ms step; what removing it would gain needs a captured window"
    )
    assert findings[0].advice == ITEM.advice
    assert findings[2].evidence == "`use(x)`, 2 times"
    assert findings[4].evidence == "steps 27-30: the loop ended; the loop ended in the window"


def test_a_schedule_that_never_became_active_is_a_finding() -> None:
    (finding,) = build(trace(captures=CaptureState((), False, (), "the loop ran 5 steps"))).findings
    assert (finding.code, finding.evidence) == ("TS504", "the loop ran 5 steps")
    assert finding.advice.startswith("let the loop run for at least skip_first + wait + warmup")


def test_ranks_are_summed_up_and_the_report_is_that_of_the_first() -> None:
    slow = trace(step_rows(20, wall_us=(30_600,)), rank=2, syncs=(ITEM,))
    info = INFO.model_copy(update={"world_size": 3})
    made = build(trace(syncs=(ITEM,), info=info, ranks=(slow,), missing_ranks=(1,)))
    assert made.steps.count == 480
    assert made.ranks is not None
    assert made.ranks.model_dump() == {
        "missing": [1],
        "per_rank": [
            {"rank": 0, "steps": 480, "step_ms_median": 20.4},
            {"rank": 2, "steps": 20, "step_ms_median": 30.6},
        ],
        "slowest": 2,
        "slowest_over_median": 1.2,
        "syncs": [
            {
                "site": "train.py:42",
                "kind": "item",
                "ranks": [0, 2],
                "count": 960,
                "blocked_ms_total": 10272.0,
            }
        ],
    }
