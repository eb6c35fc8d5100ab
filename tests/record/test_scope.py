"""Scope in loops as people write them: what is recorded, and that every way out is clean."""

from __future__ import annotations

import gc
import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from warm import warm_script

import trainscope as ts
from trainscope.errors import ConfigError


def counts(scope: ts.Scope) -> tuple[int, dict[str, int]]:
    """Number of steps, and how many rows each name has."""
    scope._session.save()
    trace = ts.load(scope.run_dir)
    names = [trace.names[i] for i in trace.ranges.name_id]
    return names.count("step"), {name: names.count(name) for name in set(names) - {"step"}}


@pytest.fixture
def scope(tmp_path: Path):
    with ts.Scope(tmp_path / "run") as scope:
        yield scope


def test_every_turn_is_a_step_with_a_data_phase(scope: ts.Scope) -> None:
    assert list(scope.steps([10, 20, 30])) == [10, 20, 30]
    assert counts(scope) == (3, {"data": 3})


def test_a_break_ends_its_step(scope: ts.Scope) -> None:
    for batch in scope.steps(range(10)):
        if batch == 3:
            break
    assert counts(scope) == (4, {"data": 4})


def test_epochs_go_on_counting(scope: ts.Scope) -> None:
    steps = scope.steps([1, 2])
    assert len(steps) == 2
    for _ in range(3):
        assert list(steps) == [1, 2]
    trace = (scope._session.save(), ts.load(scope.run_dir))[1]
    assert trace.ranges.step[trace.ranges.depth == 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_an_exception_in_the_body_passes_and_the_next_loop_begins_anew(scope: ts.Scope) -> None:
    with pytest.raises(ZeroDivisionError):
        for batch in scope.steps([1, 0, 2]):
            with scope.phase("forward"):
                _ = 1 / batch
    for _ in scope.steps([5]):
        pass
    gc.collect()
    assert counts(scope) == (3, {"data": 3, "forward": 2})


def test_an_exception_of_the_loader_passes(scope: ts.Scope) -> None:
    def broken():
        yield 1
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(scope.steps(broken()))
    assert scope._session.recorder.step == -1


def test_a_dropped_iterator_does_not_end_a_later_step(scope: ts.Scope) -> None:
    dropped = iter(scope.steps([1, 2]))
    next(dropped)
    seen = []
    for batch in scope.steps([3]):
        del dropped
        gc.collect()
        seen.append((batch, scope._session.recorder.step))
    assert seen == [(3, 1)]


def test_steps_by_hand_and_ranges_in_them(scope: ts.Scope) -> None:
    for _ in range(2):
        with scope.step(), scope.phase("rollout"), scope.range("env"):
            pass
    assert counts(scope) == (2, {"rollout": 2, "env": 2})
    assert scope.report().steps.counted_by == "scope.step"


def test_a_resumed_run_counts_from_its_first_step(tmp_path: Path) -> None:
    with ts.Scope(tmp_path / "run", start_step=1000) as scope:
        for _ in scope.steps("ab"):
            scope.log(x=1.0)
    lines = (tmp_path / "run" / "rank0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1000, 1001]


def test_a_used_directory_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    for _ in range(2):
        with ts.Scope(tmp_path / "run") as scope:
            list(scope.steps([1]))
    assert scope.run_dir == tmp_path / "run-2"
    assert "run-2" in capfd.readouterr().err


def test_two_scopes_at_once_each_have_their_own_steps(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ts.Scope(tmp_path / "a") as a, ts.Scope(tmp_path / "b") as b:
        a.wrap(model, optimizer)
        for _ in a.steps(range(3)):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        list(b.steps(range(2)))
        assert counts(a)[0] == 3
        assert counts(b) == (2, {"data": 2})


def test_two_scopes_in_a_step_at_once_each_have_the_copy_to_the_device(tmp_path: Path) -> None:
    with (
        ts.Scope(tmp_path / "a", dry_run=True) as a,
        ts.Scope(tmp_path / "b", dry_run=True) as b,
        a.step(),
    ):
        for x in b.steps([torch.ones(1)] * 2):
            x.to("cpu".lower())
    assert counts(a) == (1, {"h2d": 2})
    assert counts(b) == (2, {"data": 2, "h2d": 2})


@pytest.mark.parametrize("off", ["argument", "environment"])
def test_off_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    if off == "environment":
        monkeypatch.setenv("TRAINSCOPE_DISABLED", "1")
    before = set(vars(torch.Tensor)), list(warnings.filters), nn.Linear.__call__
    loader, model = [1, 2], nn.Linear(2, 1)
    with ts.Scope(tmp_path / "run", enabled=off == "environment") as scope:
        assert scope.wrap(model) is model
        assert scope.steps(loader) is loader
        with scope.step(), scope.phase("forward"), scope.range("x"):
            scope.log(loss=object())
        assert scope.latest("loss") is None
        assert (set(vars(torch.Tensor)), list(warnings.filters), nn.Linear.__call__) == before
    assert not (tmp_path / "run").exists()
    report = scope.report()
    assert report.verdict == "trainscope is disabled, so nothing was recorded."
    assert report.steps.count == 0
    assert str(report) == f"{report.verdict}\n\nSteps\n  0 steps\n"
    with pytest.raises(ConfigError, match="disabled"):
        _ = scope.run_dir


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("sync", "loud"),
        ("every", 0),
        ("every", 1.5),
        ("reduce", "median"),
        ("start_step", -1),
        ("stacks", "yes"),
    ],
)
def test_a_bad_argument_is_named_and_makes_no_directory(
    tmp_path: Path, argument: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=argument) as error:
        ts.Scope(tmp_path / "run", **{argument: value})
    assert repr(value) in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_type_is_called_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"schedule=\(20, 3, 4\): .* instance of Schedule$"):
        ts.Scope(tmp_path / "run", schedule=(20, 3, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sinks", "words"),
    [
        (ts.sinks.Console(), "it is a list of sinks"),
        ("wandb", "it is a list of sinks"),
        (["wandb"], "'wandb' as a sink, which has no 'name'"),
        ([ts.sinks.Console], r"make one: Console\(\)"),
        (None, "it is a list of sinks"),
    ],
    ids=["a sink", "a name", "a list of names", "a class", "None"],
)
def test_what_is_no_sink_is_told_and_makes_no_directory(
    tmp_path: Path, sinks: object, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        ts.Scope(tmp_path / "run", sinks=sinks)
    assert not (tmp_path / "run").exists()


def test_a_fault_of_ours_warns_once_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ts.Scope(tmp_path / "run") as scope:

        def broken(step: int) -> None:
            raise RuntimeError("a fault planted by the test")

        monkeypatch.setattr(scope._session.detector, "begin_step", broken)
        seen = []
        with pytest.warns(RuntimeWarning, match="planted by the test") as caught:
            for batch in scope.steps([1, 2, 3]):
                seen.append(batch)
                scope.phase("forward")
        assert seen == [1, 2, 3]
        assert sum("planted" in str(warning.message) for warning in caught) == 1


def test_logging_after_close_warns_and_loses_nothing_written(tmp_path: Path) -> None:
    scope = ts.Scope(tmp_path / "run")
    with scope.step():
        scope.log(x=1.0)
    scope.close()
    scope.close()
    with pytest.warns(RuntimeWarning, match="after scope.close"):
        scope.log(x=2.0)
    lines = (tmp_path / "run" / "rank0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["x"] for line in lines] == [1.0]


def test_a_run_killed_outright_keeps_what_was_flushed(place: Path) -> None:
    script = (
        "import os, sys, time, trainscope as ts\n"
        "scope = ts.Scope('run')\n"
        "for _ in scope.steps(range(5)):\n"
        "    scope.log(x=1.0)\n"
        "time.sleep(2)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert warm_script(place, script).end().status == -9
    report = ts.analyze(ts.load(place / "run"))
    assert report.steps.count == 5
    assert len((place / "run/rank0/metrics.jsonl").read_text().splitlines()) == 5
