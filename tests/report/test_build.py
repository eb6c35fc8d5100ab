from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import INFO, ITEM, MS, full_trace, site, step_rows, trace

from trainscope.report import text
from trainscope.report.build import build
from trainscope.report.model import LeftOut, LongSteps, RangeReport, Spread
from trainscope.trace.captures import CaptureState, CaptureWindow
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


def test_long_steps_are_told_and_left_out_of_shares() -> None:
    made = build(trace(step_rows(49, wall_us=(20_000,) * 24 + (1_020_000,))))
    assert made.steps.long == LongSteps(
        over_median=5, count=1, of=48, share=1_020_000 / (47 * 20_000 + 1_020_000), first=[24]
    )
    assert [(p.name, p.share, p.steps) for p in made.phases] == [
        ("data", 1 / 20, 48),
        ("forward", 12 / 20, 48),
        ("backward", 5 / 20, 48),
        ("optimizer", 2 / 20, 48),
    ]
    assert build(trace(step_rows(9, wall_us=(20_000, 100_000)))).steps.long is None  # 5 times


def test_long_steps_may_be_those_of_another_loop() -> None:
    rows = step_rows(49, wall_us=(20_000,) * 24 + (1_020_000,))
    one = "trainscope run: turns of the loop at a.py:3"
    said: list[bool] = []
    for counted_by in (one, f"{one} and at a.py:9", f"{one}; 2 turns and at least one more"):
        info = INFO.model_copy(update={"counted_by": counted_by})
        page = text.render(build(trace(rows, info=info)), width=250)
        assert "something else happens in them" in page
        said.append("something else happens in them, or they are of another loop (step 24)" in page)
    assert said == [False, True, False]


def test_a_line_in_several_phases_is_one_entry_with_the_words_of_the_most_frequent() -> None:
    untimed = {"timed": 0, "blocked_ns_total": 0, "blocked_ns_median": None}
    made = build(
        trace(
            syncs=(
                site(phase=None, count=480, caller="/home/me/project/b.py:3", **untimed),
                site(phase="h2d", count=480, timed=480, blocked_ns_total=9 * MS),
                site(phase="forward", count=1, **untimed),
                site(phase="forward", count=1, allowed="once"),
            )
        )
    )
    first, allowed = made.syncs
    assert (first.count, first.per_step, first.phase) == (961, 961 / 480, "h2d")
    assert (first.caller, first.callers) == ("train.py:80", 2)
    assert (first.timed, first.blocked_ms_total, first.blocked_ms_median) == (480, 9.0, 10.7)
    assert (allowed.count, allowed.allowed) == (1, "once")
    assert [finding.site for finding in made.findings] == ["train.py:42"]


def test_lines_of_every_step_come_before_rare_ones_and_before_what_is_asked_for() -> None:
    untimed = {"timed": 0, "blocked_ns_total": 0, "blocked_ns_median": None}
    sites = (
        site(line=1, explicit=True),
        site(line=2, count=900, steps=3, **untimed),
        site(line=3, count=480, steps=480, **untimed),
        site(line=4, count=960, steps=480, **untimed),
        site(line=5, count=100, **untimed),  # no more than 100 steps, so after those of all
        site(line=6, count=3, timed=3, steps=3, blocked_ns_median=MS),
    )
    made = build(trace(syncs=sites))
    assert [sync.line for sync in made.syncs] == [6, 4, 3, 5, 2, 1]
    assert [sync.steps for sync in made.syncs] == [3, 480, 480, None, 3, None]


def test_ranges_that_are_no_phases_are_told() -> None:
    rows = [
        (0, 1, 2, 0, 2 * MS),
        (0, 1, 2, 2 * MS, 3 * MS),
        (0, 2, 1, 0, 4 * MS),
        (0, 0, 0, 0, 5 * MS),
        (-1, 3, 1, 6 * MS, 8 * MS),
    ]
    made = build(trace(rows, names=("step", "tokenize", "data", "validation")))
    assert made.ranges == [
        RangeReport(
            name="tokenize",
            depth=2,
            inside="data",
            in_steps=True,
            calls=2,
            steps=1,
            per_step_ms=Spread(median=3.0, p10=3.0, p90=3.0),
            total_ms=3.0,
        ),
        RangeReport(
            name="validation",
            depth=1,
            inside=None,
            in_steps=False,
            calls=1,
            steps=None,
            per_step_ms=None,
            total_ms=2.0,
        ),
    ]
    assert made.ranges_left_out == 0


def test_a_branch_that_only_a_machine_without_a_gpu_takes_is_no_wait(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "def load(x, device):\n"
        "    if device == 'cuda':\n"
        "        x = x.pin_memory().to(device, non_blocking=True)\n"
        "    else:\n"
        "        x = x.to(device)\n"
        "    return x.sum().item()\n"
    )
    untimed = {"timed": 0, "blocked_ns_total": 0, "blocked_ns_median": None}
    seen = {"file": str(program), "count": 20, **untimed}
    sites = (
        site(line=5, source="x = x.to(device)", **seen),
        site(line=5, source="x = x.to(device)", during="evaluation", **seen),
        site(line=6, source="return x.sum().item()", **seen),
    )
    dry = INFO.model_copy(update={"dry_run": True, "device": None, "cwd": str(tmp_path)})
    made = build(trace(step_rows(20), info=dry, syncs=sites))
    assert [(sync.line, sync.no_gpu_branch) for sync in made.syncs] == [
        (6, False),
        (5, True),
        (5, True),
    ]
    assert made.verdict == (
        "Dry run: 1 line would make the CPU wait for the GPU in 20 steps; first train.py:6 "
        "(20 times)."
    )
    shown = text.render(made, width=80)
    assert "train.py:5 in main: TS101 item, only where there is no GPU, 20 times\n" in shown
    live = INFO.model_copy(update={"cwd": str(tmp_path)})
    assert [sync.no_gpu_branch for sync in build(trace(info=live, syncs=sites)).syncs] == [
        False,
        False,
        False,
    ]
    changed = tuple(replace(each, source="x = x.to(device)  # then") for each in sites[:1])
    assert [sync.no_gpu_branch for sync in build(trace(info=dry, syncs=changed)).syncs] == [False]


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


def test_overhead_of_the_mean_step_is_a_share_of_the_mean_step() -> None:
    counts = Counts(range_cost_ns=0.0, per_step_cost_ns=1_000_000.0)
    overhead = build(trace(step_rows(41, wall_us=(7_400, 200, 200, 200)), counts=counts)).overhead
    assert overhead is not None
    assert overhead.share == 0.5  # of 2 ms: the first step is left out


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


@pytest.mark.parametrize(
    ("first", "rows", "times_are", "slowed"),
    [(20, 40, "left out", 13), (3, 40, "too long", 0), (20, 27, None, 0)],
)
def test_a_profiler_that_stayed_is_told_with_what_it_does_to_the_times_of_later_steps(
    first, rows, times_are, slowed
) -> None:
    stays = "with CUDA 12.4 it cannot leave"
    window = CaptureWindow(first, first, first + 6, None, "torch.profiler", True, 0, 0, stays)
    made = build(trace(step_rows(rows), captures=CaptureState((window,))))
    assert made.steps.left_out.slowed == slowed
    if times_are is None:
        assert made.notes == []
        return
    assert made.notes == [
        f"the profiler stayed in the process after step {first + 6}, and slows each launch of the "
        f"steps since ({stays}): their times are {times_are}"
    ]
    told = " ".join(text.render(made, width=80).split())
    out = "7 captured and 13 with the profiler still in the process left out"
    assert (out in told) is bool(slowed)
    assert made.notes[0][:40] in told


def test_a_schedule_that_never_became_active_is_a_finding() -> None:
    (finding,) = build(trace(captures=CaptureState((), False, (), "the loop ran 5 steps"))).findings
    assert (finding.code, finding.evidence) == ("TS504", "the loop ran 5 steps")
    assert finding.advice == "let the loop run for at least wait + warmup + active steps"
    schedule = {"skip_first": 0, "wait": 20, "warmup": 3, "active": 4, "repeat": 1}
    for skip_first, words in (
        (0, "27 steps (wait 20 + warmup 3 + active 4)"),
        (2, "29 steps (skip_first 2 + wait 20 + warmup 3 + active 4)"),
    ):
        info = INFO.model_copy(update={"schedule": {**schedule, "skip_first": skip_first}})
        (finding,) = build(
            trace(step_rows(26), info=info, captures=CaptureState((), False))
        ).findings
        assert finding.advice == f"let the loop run for at least {words}"
    enough = trace(step_rows(29), info=info, captures=CaptureState((), False, (), "another was"))
    (finding,) = build(enough).findings
    assert finding.advice.startswith("the loop ran long enough: remove what was in the way")
    doubt = INFO.model_copy(update={"schedule": schedule, "counted_by": "cannot tell: two loops"})
    (finding,) = build(trace(info=doubt, captures=CaptureState((), False))).findings
    assert finding.advice.endswith("over scope.steps(loader) of a trainscope.Scope")


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
