"""The first line of a report, word for word."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_runs import ARMED, INFO, ITEM, site, step_rows, trace

from trainscope.report.build import build
from trainscope.trace.metrics import MetricsState
from trainscope.trace.syncs import DetectorState
from trainscope.trace.trace import Trace

UNTIMED = {"timed": 0, "blocked_ns_total": 0, "blocked_ns_median": None}
DRY = INFO.model_copy(update={"dry_run": True, "device": None})
NO_STEP_DRY = DRY.model_copy(
    update={"counted_by": "cannot tell: no training backward was seen on the main thread"}
)


def uncounted(reason: str) -> Trace:
    return trace([], info=INFO.model_copy(update={"counted_by": f"cannot tell: {reason}"}))


CASES = {
    "a wait in each step": (
        trace(syncs=(ITEM,)),
        "train.py:42 made the CPU wait 10.7 ms of every 20.4 ms step (`if loss.item() > 1e9:`); "
        "what removing it would gain is not known from this run.",
    ),
    "two waits in each step": (
        trace(syncs=(site(count=960, timed=960, blocked_ns_median=3_000_000),)),
        "train.py:42 made the CPU wait 6.00 ms of every 20.4 ms step (`if loss.item() > 1e9:`); "
        "what removing it would gain is not known from this run.",
    ),
    "a wait now and then, and more lines": (
        trace(syncs=(site(count=48, timed=48), site(line=50, count=3, **UNTIMED))),
        "train.py:42 made the CPU wait 48 times in 480 steps of 20.4 ms, 10.7 ms each "
        "(`if loss.item() > 1e9:`); what removing it would gain is not known from this run. "
        "1 more line made it wait too.",
    ),
    "an idle wait is told as small as it is": (
        trace(syncs=(site(blocked_ns_median=10_500, source=""),)),
        "train.py:42 made the CPU wait 10.5 µs of every 20.4 ms step; what removing it would gain "
        "is not known from this run.",
    ),
    "many waits in few steps": (
        trace(syncs=(site(count=960, timed=960, steps=3),)),
        "train.py:42 made the CPU wait 960 times in 3 of 480 steps of 20.4 ms, 10.7 ms each "
        "(`if loss.item() > 1e9:`); what removing it would gain is not known from this run.",
    ),
    "one line in two ways": (
        trace(syncs=(ITEM, site(kind="bool", **UNTIMED))),
        "train.py:42 made the CPU wait 10.7 ms of every 20.4 ms step (`if loss.item() > 1e9:`); "
        "what removing it would gain is not known from this run.",
    ),
    "a wait of unknown length": (
        trace(syncs=(site(**UNTIMED),)),
        "train.py:42 made the CPU wait 480 times in 480 steps of 20.4 ms, for an unknown time "
        "(`if loss.item() > 1e9:`); what removing it would gain is not known from this run.",
    ),
    "a wait and a gap": (
        trace(syncs=(ITEM,), detector=replace(ARMED, disarmed=("steps 1-2: why", "step 9: why"))),
        "train.py:42 made the CPU wait 10.7 ms of every 20.4 ms step (`if loss.item() > 1e9:`); "
        "what removing it would gain is not known from this run. The detector was disarmed in "
        "steps 1-2, step 9.",
    ),
    "a gap before the steps alone": (
        trace(syncs=(ITEM,), detector=replace(ARMED, disarmed_before="a filter")),
        "train.py:42 made the CPU wait 10.7 ms of every 20.4 ms step (`if loss.item() > 1e9:`); "
        "what removing it would gain is not known from this run.",
    ),
    "no wait and a gap before the steps": (
        trace(detector=replace(ARMED, disarmed_before="a filter")),
        "No sync in 480 steps of 20.4 ms (detector armed in all of them).",
    ),
    "no wait": (trace(), "No sync in 480 steps of 20.4 ms (detector armed in all of them)."),
    "one step": (
        trace(step_rows(1), detector=replace(ARMED, armed_steps=1)),
        "No sync in 1 step of 20.4 ms (detector armed in all of them).",
    ),
    "no wait but a gap": (
        trace(detector=replace(ARMED, armed_steps=475, disarmed=("steps 120-124: a filter",))),
        "No sync seen, but the detector was disarmed in steps 120-124.",
    ),
    "no wait but armed late": (
        trace(detector=replace(ARMED, armed_steps=400)),
        "No sync seen, but the detector was armed in 400 of 480 steps only.",
    ),
    "only asked for and allowed": (
        trace(syncs=(site(explicit=True, line=9), site(allowed="checkpoint", count=4))),
        "No sync in 480 steps of 20.4 ms but those asked for or allowed: 2 lines, 484 times.",
    ),
    "only outside training": (
        trace(
            syncs=(
                site(during="setup"),
                site(during="evaluation", line=9),
                site(during="evaluation", line=9, kind="bool"),
                site(during="compilation", line=10),
            )
        ),
        "No sync in 480 steps of 20.4 ms (detector armed in all of them). 2 lines waited outside "
        "training.",
    ),
    "detector off": (
        trace(detector=DetectorState()),
        "480 steps of 20.4 ms; the detector was off, so syncs are not known.",
    ),
    "no GPU": (
        trace(
            info=INFO.model_copy(update={"device": None}), detector=replace(ARMED, armed_steps=0)
        ),
        "480 steps of 20.4 ms; there was no GPU to wait for. A dry run finds the lines that would "
        "wait for one: `trainscope run`, or Scope(dry_run=True).",
    ),
    "syncs never saved": (
        trace(detector=None),
        "480 steps of 20.4 ms; whether anything made the CPU wait was not saved.",
    ),
    "nothing at all": (
        trace([], detector=None),
        "No training step was seen (counted by scope.steps); whether anything made the CPU wait "
        "was not saved.",
    ),
    "no step": (
        trace([]),
        "No training step was seen (counted by scope.steps). No sync was seen outside steps "
        "either.",
    ),
    "no step that can be told": (
        uncounted("other processes are not followed"),
        "No training step was seen (cannot tell: other processes are not followed). No sync was "
        "seen either.",
    ),
    "no step, and nothing says how it was looked for": (
        trace([], info=INFO.model_copy(update={"counted_by": None})),
        "No training step was seen. No sync was seen outside steps either.",
    ),
    "no step but an evaluation": (
        trace([], syncs=(site(during="evaluation"),)),
        "No training step was seen (counted by scope.steps). 1 line waited outside training.",
    ),
    "no step but waits": (
        trace([], syncs=(site(during="setup", count=20, timed=20, blocked_ns_total=12_000_000),)),
        "No training step was seen (counted by scope.steps). train.py:42 made the CPU wait 20 "
        "times, 12.0 ms in all (`if loss.item() > 1e9:`); what removing it would gain is not known "
        "from this run.",
    ),
    "steps cannot be told": (
        replace(uncounted("two loops run a backward"), syncs=(site(during="setup", **UNTIMED),)),
        "No training step was seen (cannot tell: two loops run a backward). train.py:42 made the "
        "CPU wait 480 times (`if loss.item() > 1e9:`); what removing it would gain is not known "
        "from this run.",
    ),
    "a value that is not finite": (
        trace(metrics=MetricsState(9, 9, 0, (("loss", 12, float("nan")),), 1)),
        "No sync in 480 steps of 20.4 ms (detector armed in all of them). loss was nan at step 12.",
    ),
    "dry run": (
        trace(
            step_rows(20),
            info=DRY,
            syncs=(
                site(count=3, line=5, **UNTIMED),
                site(count=20, **UNTIMED),
                site(line=7, count=1, **UNTIMED),
            ),
        ),
        "Dry run: 3 lines would make the CPU wait for the GPU in 20 steps; first train.py:42 "
        "(20 times).",
    ),
    "dry run, and what is a step is in doubt": (
        trace(
            step_rows(4),
            info=DRY.model_copy(update={"counted_by": "cannot tell: two loops"}),
            syncs=(site(count=60, **UNTIMED),),
        ),
        "Dry run: 1 line would make the CPU wait for the GPU; first train.py:42 (60 times).",
    ),
    "dry run without steps": (
        trace([], info=DRY, syncs=(site(count=1, during="setup", **UNTIMED),)),
        "Dry run. No training step was seen (counted by scope.steps). Outside steps 1 line would "
        "make the CPU wait for the GPU; first train.py:42 (1 time).",
    ),
    "dry run without steps, clean": (
        replace(uncounted("no training backward was seen on the main thread"), info=NO_STEP_DRY),
        "Dry run. No training step was seen (cannot tell: no training backward was seen on the "
        "main thread). No line that would make the CPU wait for the GPU was seen either.",
    ),
    "dry run without steps to tell, and a wait that may be in them": (
        replace(
            uncounted("no training backward was seen on the main thread"),
            info=NO_STEP_DRY,
            syncs=(site(count=1, during="setup", **UNTIMED),),
        ),
        "Dry run. No training step was seen (cannot tell: no training backward was seen on the "
        "main thread). 1 line would make the CPU wait for the GPU; first train.py:42 (1 time).",
    ),
    "dry run without steps, evaluation": (
        trace([], info=NO_STEP_DRY, syncs=(site(during="evaluation", **UNTIMED),)),
        "Dry run. No training step was seen (cannot tell: no training backward was seen on the "
        "main thread). 1 line would wait outside training.",
    ),
    "dry run, rarely and in each step": (
        trace(
            step_rows(20),
            info=DRY,
            syncs=(
                site(count=60, steps=3, line=5, **UNTIMED),
                site(count=20, steps=20, line=6, **UNTIMED),
                site(count=40, steps=20, line=7, **UNTIMED),
            ),
        ),
        "Dry run: 3 lines would make the CPU wait for the GPU in 20 steps; first train.py:7 "
        "(40 times).",
    ),
    "dry run, one line in two ways and two phases": (
        trace(
            step_rows(20),
            info=DRY,
            syncs=(
                site(count=20, phase="h2d", **UNTIMED),
                site(count=20, phase=None, **UNTIMED),
                site(count=20, kind="bool", **UNTIMED),
            ),
        ),
        "Dry run: 1 line would make the CPU wait for the GPU in 20 steps; first train.py:42 "
        "(60 times).",
    ),
    "dry run, clean": (
        trace(step_rows(20), info=DRY),
        "Dry run: no line would make the CPU wait for the GPU in 20 steps.",
    ),
    "dry run with a race": (
        trace(step_rows(20), info=DRY, detector=replace(ARMED, races=(site(line=8),))),
        "Dry run: no line would make the CPU wait for the GPU in 20 steps. train.py:8 reads a "
        "value before its copy has landed.",
    ),
    "dry run, evaluation": (
        trace(step_rows(20), info=DRY, syncs=(site(during="evaluation", **UNTIMED),)),
        "Dry run: no line would make the CPU wait for the GPU in 20 steps. 1 line would wait "
        "outside training.",
    ),
    "an agent that acts between steps": (
        trace(
            syncs=(
                site(count=480, blocked_ns_total=5_000_000_000),
                site(during="evaluation", line=9, blocked_ns_total=7_000_000_000),
                site(during="between", blocked_ns_total=8_000_000_000),
            )
        ),
        "train.py:42 made the CPU wait 10.7 ms of every 20.4 ms step (`if loss.item() > 1e9:`); "
        "what removing it would gain is not known from this run. The CPU waited longer outside "
        "training, 15.0 s against 5.00 s, most at train.py:42.",
    ),
    "an agent whose waits were not all timed": (
        trace(
            syncs=(
                site(count=480),
                site(during="evaluation", line=9, count=3000),
                site(during="between", line=9, count=3000, **UNTIMED),
                site(during="setup", count=90_000, **UNTIMED),
            )
        ),
        "train.py:42 made the CPU wait 10.7 ms of every 20.4 ms step (`if loss.item() > 1e9:`); "
        "what removing it would gain is not known from this run. The CPU waited more often "
        "outside training, 6,000 times against 480, most at train.py:9.",
    ),
    "dry run, an agent": (
        trace(
            step_rows(20),
            info=DRY,
            syncs=(site(count=20, **UNTIMED), site(during="between", line=9, count=81, **UNTIMED)),
        ),
        "Dry run: 1 line would make the CPU wait for the GPU in 20 steps; first train.py:42 "
        "(20 times). The CPU would wait more often outside training, 81 times against 20, "
        "most at train.py:9.",
    ),
    "dry run, a checkpoint of many tensors": (
        trace(
            step_rows(20),
            info=DRY,
            syncs=(
                site(count=20, **UNTIMED),
                site(during="between", line=9, count=40, **UNTIMED),
                site(during="between", line=30, count=999, via="torch.serialization:1", **UNTIMED),
            ),
        ),
        "Dry run: 1 line would make the CPU wait for the GPU in 20 steps; first train.py:42 "
        "(20 times). 2 lines would wait outside training.",
    ),
    "dry run, off": (
        trace(step_rows(2), info=DRY, detector=DetectorState()),
        "Dry run in 2 steps: the detector was off, so nothing was looked for.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_verdict(case: str) -> None:
    made, expected = CASES[case]
    assert build(made).verdict == expected


def test_a_long_source_line_is_cut() -> None:
    verdict = build(trace(syncs=(site(source="x" * 200),))).verdict
    assert f"(`{'x' * 59}…`)" in verdict
