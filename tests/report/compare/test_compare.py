"""``compare``: what is told, what is called noise, and what cannot be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from made_runs import ITEM, full_trace, site, step_rows, trace, write_run
from typer.testing import CliRunner

from trainscope import api
from trainscope.analysis.change import change_of_medians
from trainscope.cli.compare import compare as command
from trainscope.report.compare.build import compare
from trainscope.report.compare.text import render

app = typer.Typer()
app.command()(command)


def noisy(median_us: int, *, seed: int) -> list[int]:
    return (median_us * np.random.default_rng(seed).normal(1, 0.05, 480)).astype(int).tolist()


def test_a_change_beyond_noise_is_told() -> None:
    comparison = compare(
        trace(step_rows(480, wall_us=noisy(22_000, seed=1))),
        trace(step_rows(480, wall_us=noisy(24_200, seed=2))),
    )
    assert comparison.step.told
    assert comparison.step.band is not None
    low, high = comparison.step.band
    assert 1.08 < low < 1.1 < high < 1.12
    assert comparison.verdict.startswith("Steps are ")
    assert "% slower: 2" in comparison.verdict


def test_where_every_phase_changes_with_the_step_it_may_be_the_machine() -> None:
    before = step_rows(480, wall_us=noisy(22_000, seed=1))
    after = [(*row[:3], row[3] * 9 // 10, row[4] * 9 // 10) for row in before]
    busy = compare(trace(before), trace(after)).verdict
    assert "% faster, and so is every phase, as if the machine were: 2" in busy
    slower = compare(trace(before), trace(step_rows(480, wall_us=noisy(26_000, seed=2)))).verdict
    assert "% slower: 2" in slower  # what is slower is in no phase


@pytest.mark.parametrize(("after_us", "doubted"), [(22_400, True), (23_000, False)])
def test_what_two_runs_of_one_program_differ_by_is_said_to_be_no_more(
    after_us: int, doubted: bool
) -> None:
    quiet = np.random.default_rng(1).normal(0, 20, 480).astype(int)
    before, after = (
        trace(step_rows(480, wall_us=(us + quiet).tolist())) for us in (22_000, after_us)
    )
    comparison = compare(before, after)
    assert comparison.step.told
    assert (
        "slower, by no more than two runs of one program may differ: 2" in comparison.verdict
    ) is (doubted)


def test_the_same_loop_again_is_noise_nearly_always() -> None:
    told = [
        compare(
            trace(step_rows(480, wall_us=noisy(22_000, seed=seed))),
            trace(step_rows(480, wall_us=noisy(22_000, seed=seed + 100))),
        ).step.told
        for seed in range(20)
    ]
    assert told.count(True) <= 3


def test_a_run_that_wanders_gets_a_wide_interval() -> None:
    """Neighbours are alike, so that many values say less than as many independent ones."""
    wander = np.repeat(np.random.default_rng(3).normal(1, 0.1, 20), 50) * 1e7
    steady = np.random.default_rng(4).permutation(wander)
    wide = change_of_medians(wander.astype(np.int64), wander.astype(np.int64))
    narrow = change_of_medians(steady.astype(np.int64), steady.astype(np.int64))
    assert wide is not None
    assert narrow is not None
    assert wide.high is not None
    assert wide.low is not None
    assert narrow.high is not None
    assert narrow.low is not None
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_few_steps_give_no_interval() -> None:
    comparison = compare(trace(step_rows(19)), trace(step_rows(19, wall_us=(40_000,))))
    assert (comparison.step.band, comparison.step.told) == (None, None)
    assert comparison.step.ratio == pytest.approx(40 / 20.4)
    assert "cannot be told" in comparison.verdict
    assert "too few steps to tell a change from noise" in comparison.notes


def test_syncs_come_go_and_change() -> None:
    gone = site(source="gone", line=3)
    new = site(source="new", line=4, count=240)
    comparison = compare(
        trace(syncs=(ITEM, gone)),
        trace(syncs=(site(line=77, count=960), new)),
    )
    assert [each.source for each in comparison.syncs_new] == ["new"]
    assert [each.source for each in comparison.syncs_gone] == ["gone"]
    (changed,) = comparison.syncs_changed
    assert (changed.per_step_before, changed.per_step_after) == (1.0, 2.0)
    assert (changed.lines_before, changed.lines_after) == ([42], [77])
    assert comparison.verdict.endswith("1 new sync and 1 removed sync.")


def test_unlike_runs_are_not_compared() -> None:
    run = trace()
    dry = replace(run, info=run.info.model_copy(update={"dry_run": True}))
    other = replace(run, info=run.info.model_copy(update={"device": "A100"}))
    for one, words in ((dry, "a dry run runs on the CPU"), (other, "the devices differ")):
        comparison = compare(run, one)
        assert comparison.verdict.startswith("Step times cannot be compared (20.4 ms before")
        assert any(note.startswith(words) for note in comparison.notes)


def test_syncs_that_nobody_watched_are_not_counted() -> None:
    comparison = compare(trace(detector=None), trace(syncs=(ITEM,)))
    assert "sync" not in comparison.verdict
    assert comparison.notes[0].startswith("before: no detector looked")


def test_nothing_recorded_is_said() -> None:
    comparison = compare(trace([]), trace())
    assert comparison.verdict.startswith("Step times cannot be compared: one side has none.")
    assert comparison.step.ratio is None


def test_the_command(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", full_trace()).path
    other = write_run(tmp_path / "b", trace()).path
    expected = api.compare(api.load(one), api.load(other))
    done = CliRunner().invoke(app, [str(one), str(other)])
    assert (done.exit_code, done.stdout) == (0, render(expected))
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    done = CliRunner().invoke(app, [str(one), str(other), "--format", "json"])
    assert json.loads(done.stdout) == json.loads(expected.model_dump_json())
    done = CliRunner().invoke(app, [str(one), str(tmp_path / "none")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "does not exist" in done.stderr


def test_hostile_names_do_not_drive_the_terminal() -> None:
    shown = render(compare(trace(), trace(syncs=(site(source="\x1b[2Jx", function="[red]f"),))))
    assert "\x1b" not in shown
    assert "[red]f" in shown
