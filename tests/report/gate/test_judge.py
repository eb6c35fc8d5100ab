"""``judge``: moved code stays green; a new line, kind, function or rate does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_runs import ARMED, ITEM, MS, site, step_rows, trace, without_gpu
from made_windows import Made

from trainscope.errors import ConfigError
from trainscope.report.build import build
from trainscope.report.gate.baseline import Baseline, Budgets
from trainscope.report.gate.judge import judge, updated
from trainscope.report.gate.judgement import Judgement
from trainscope.report.gate.text import render
from trainscope.trace.syncs import DetectorState, SyncSite
from trainscope.trace.trace import Trace

SECOND = site(line=50, source="log(loss.item())")


def made(*syncs: SyncSite, steps: int = 480) -> Trace:
    return trace(step_rows(steps), syncs=syncs)


def held(run: Trace, baseline: Baseline) -> Judgement:
    return judge(run, baseline)


def test_a_run_passes_the_baseline_written_from_it() -> None:
    run = made(ITEM, SECOND)
    judgement = held(run, updated(run, None))
    assert (judgement.passed, judgement.known, judgement.gone) == (True, 2, [])
    assert render(judgement) == "passed: no new sync, 2 known ones, no budget exceeded\n"


@pytest.mark.parametrize(
    "moved",
    [
        {"line": 52, "caller": "/home/me/project/train.py:99"},
        {"phase": "backward"},
        {"thread": "autograd"},
        {"via": "torch.nn:1 forward"},
    ],
)
def test_code_that_moves_keeps_its_key(moved: dict[str, object]) -> None:
    assert held(made(site(**moved)), updated(made(ITEM), None)).passed


@pytest.mark.parametrize(
    "other",
    [
        {"source": "x = loss.item()"},
        {"function": "evaluate"},
        {"kind": "tolist"},
        {"file": "/home/me/project/other.py"},
    ],
)
def test_another_key_is_new(other: dict[str, object]) -> None:
    run = made(ITEM, site(**other))
    judgement = held(run, updated(made(ITEM), None))
    assert [breach.what for breach in judgement.breaches] == ["new sync"]
    assert judgement.known == 1


def test_what_does_not_concern_the_loop_is_not_looked_at() -> None:
    run = made(
        ITEM,
        site(source="a", allowed="checkpoint"),
        *(site(source=d, during=d) for d in ("setup", "evaluation", "compilation", "teardown")),
    )
    assert held(run, updated(made(ITEM), None)).passed


def test_without_steps_the_whole_program_is_looked_at() -> None:
    run = trace([], syncs=(site(during="setup"),))
    judgement = held(run, updated(trace([]), None))
    assert [breach.what for breach in judgement.breaches] == ["new sync"]
    assert judgement.breaches[0].words == "480 times"
    assert judgement.notes[0].startswith("this run has no steps")


def test_where_what_a_step_is_is_in_doubt_that_is_said_and_new_syncs_are_told() -> None:
    known = made(site(count=48))
    info = known.info.model_copy(update={"counted_by": "cannot tell: two loops"})
    doubtful = replace(made(site(count=4_800), site(source="new()")), info=info)
    judged = held(doubtful, updated(known, None))
    assert [breach.what for breach in judged.breaches] == ["new sync"]
    assert any("come more often cannot be told (cannot tell: two loops)" in n for n in judged.notes)


def test_the_same_words_on_one_more_line_are_told() -> None:
    judgement = held(made(ITEM, site(line=43)), updated(made(ITEM), None))
    (breach,) = judgement.breaches
    assert breach.what == "one more line"
    assert breach.where == "train.py:42, 43 in main"
    assert breach.words.startswith("the baseline has 1 such line(s), this run 2; 2 a step")


@pytest.mark.parametrize(
    ("before", "steps_before", "now", "steps", "told"),
    [
        (480, 480, 481, 480, False),  # one wait more: the run ended elsewhere
        (480, 480, 960, 480, True),
        (480, 480, 722, 480, True),
        (480, 480, 721, 480, False),  # half as many again, and one
        (2, 250, 1, 50, False),  # each hundredth step, in a short run
        (10, 1000, 10, 50, False),  # the first ten steps: rates of unlike runs
        (1000, 1000, 100, 50, True),  # twice a step: a rate that any run shows
    ],
)
def test_rates(before: int, steps_before: int, now: int, steps: int, told: bool) -> None:
    baseline = updated(made(site(count=before, timed=0), steps=steps_before), None)
    judgement = held(made(site(count=now, timed=0), steps=steps), baseline)
    assert [breach.what for breach in judgement.breaches] == ["more often"] * told


def test_a_run_from_another_directory_finds_its_syncs() -> None:
    baseline = updated(made(ITEM), None)
    elsewhere = trace(syncs=(site(file="/build/7/project/train.py"),))
    assert held(elsewhere, baseline).passed
    assert not held(trace(syncs=(site(file="/build/7/project/brain.py"),)), baseline).passed


def test_what_is_gone_is_told_and_passes() -> None:
    judgement = held(made(ITEM), updated(made(ITEM, SECOND), None))
    assert judgement.passed
    assert [known.source for known in judgement.gone] == ["log(loss.item())"]
    assert "1 sync of the baseline did not come" in render(judgement)


@pytest.mark.parametrize(
    ("budget", "value", "words"),
    [
        ("step_ms", 20.3, "20.4, at most 20.3 allowed"),
        ("syncs_per_step", 0.5, "1, at most 0.5 allowed"),
        ("blocked_ms_per_step", 10.0, "10.7, at most 10 allowed"),
        ("gpu_idle_ms_per_step", 1.0, "at most 1 is allowed, and this run cannot tell"),
    ],
)
def test_budgets(budget: str, value: float, words: str) -> None:
    run = made(ITEM)
    over = updated(run, None).model_copy(update={"budgets": Budgets(**{budget: value})})
    (breach,) = held(run, over).breaches
    assert (breach.what, breach.where, breach.words) == ("budget", budget, words)
    if budget != "gpu_idle_ms_per_step":
        kept = over.model_copy(update={"budgets": Budgets(**{budget: value * 3})})
        assert held(run, kept).passed


def test_the_gpus_idle_time_is_the_reports() -> None:
    captured = Made()
    for step in range(3):
        at = step * 10_000_000
        captured.range(f"step {step}", at, at + 9_000_000)
        captured.launch(at + 1_000_000, at + 2_000_000, at + 5_000_000)
    run = replace(made(ITEM), windows=(captured.window(),))
    idle = build(run).idle
    assert idle is not None
    assert idle.per_step_ms > 1
    over = updated(run, None).model_copy(update={"budgets": Budgets(gpu_idle_ms_per_step=1)})
    (breach,) = held(run, over).breaches
    assert breach.words == f"{idle.per_step_ms:.4g}, at most 1 allowed"


def test_a_dry_run_cannot_tell_times() -> None:
    run = made(site(timed=0, blocked_ns_total=0, blocked_ns_median=None))
    run = replace(run, info=run.info.model_copy(update={"dry_run": True}))
    budgets = Budgets(step_ms=1e9, blocked_ms_per_step=1e9)
    judgement = held(run, updated(run, None).model_copy(update={"budgets": budgets}))
    assert [breach.where for breach in judgement.breaches] == ["step_ms", "blocked_ms_per_step"]
    assert all("cannot tell" in breach.words for breach in judgement.breaches)


def test_a_baseline_of_another_kind_of_run_is_noted() -> None:
    run = made(ITEM)
    dry = updated(run, None).model_copy(update={"dry_run": True})
    (note,) = held(run, dry).notes
    assert note.startswith("the baseline comes from a dry run and this is a run on a GPU")


def test_updating_keeps_budgets_and_reasons_and_drops_what_is_gone() -> None:
    old = updated(made(ITEM, SECOND), None)
    reasoned = [each.model_copy(update={"reason": "log"}) for each in old.syncs]
    old = old.model_copy(update={"syncs": reasoned, "budgets": Budgets(step_ms=30)})
    new = updated(made(site(line=99), site(source="new", line=7)), old)
    assert [(each.source, each.reason) for each in new.syncs] == [
        (ITEM.source, "log"),
        ("new", None),
    ]
    assert new.budgets == Budgets(step_ms=30)


def test_ranks_count_together_and_the_busiest_gives_the_rate() -> None:
    other = replace(made(site(count=960), SECOND), rank=1)
    judgement = held(replace(made(ITEM), ranks=(other,)), updated(made(ITEM), None))
    assert [(b.what, b.where) for b in judgement.breaches] == [
        ("more often", "train.py:42 in main"),
        ("new sync", "train.py:50 in main"),
    ]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (trace(detector=None), "rank 0 has no record of a sync detector"),
        (trace(detector=DetectorState()), "rank 0 has no record of a sync detector"),
        (without_gpu(), "rank 0 had no GPU to wait for, .*: record it again as a dry run"),
        (trace(missing_ranks=(1, 3)), "nothing was recorded of rank 1, 3"),
    ],
)
def test_a_run_that_cannot_tell_is_an_error(run: Trace, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        held(run, Baseline())
    with pytest.raises(ConfigError, match=words):
        updated(run, None)


def test_a_trace_is_no_run() -> None:
    bare = trace()
    bare = replace(bare, info=bare.info.model_copy(update={"source": "torch.profiler"}))
    with pytest.raises(ConfigError, match="check needs a run directory"):
        updated(bare, None)


def test_what_was_not_watched_is_noted() -> None:
    state = replace(ARMED, disarmed=("steps 3-4: removed",), disarmed_before="reset")
    judgement = held(trace(detector=state), Baseline(steps=480))
    assert judgement.notes == [
        "rank 0 was not watched everywhere: before the first step: reset",
        "rank 0 was not watched everywhere: steps 3-4: removed",
    ]


def test_the_text_of_a_failure() -> None:
    run = made(ITEM, site(line=7, source="bad\x1b[31m", count=48, timed=48, blocked_ns_total=MS))
    over = updated(made(ITEM), None).model_copy(update={"budgets": Budgets(step_ms=1)})
    assert render(held(run, over)) == (
        "failed: 1 new sync, 1 budget exceeded\n"
        "\n"
        "new sync: train.py:7 in main [TS101 item], 0.1 a step, blocked 0.00208 ms a step\n"
        "    bad?[31m\n"
        f"  {ITEM.advice}\n"
        "\n"
        "budget step_ms: 20.4, at most 1 allowed\n"
        "\n"
        "A sync that has to stay: put it under `with ts.allow_sync(reason):`, or accept it into "
        "the baseline with --update.\n"
    )
