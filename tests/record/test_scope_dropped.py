"""A scope that nothing holds, as after its cell was run again, gets out of the way of the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import trainscope as ts
from trainscope.trace.metrics import read_metrics


@pytest.fixture(autouse=True)
def no_scope_is_left() -> Iterator[None]:
    before = {thread.name for thread in threading.enumerate()}
    yield
    assert {thread.name for thread in threading.enumerate()} <= before


def names_and_steps(run_dir: Path) -> list[tuple[str, int]]:
    trace = ts.load(run_dir)
    rows = zip(trace.ranges.name_id, trace.ranges.step.tolist(), strict=True)
    return sorted({(trace.name(name), step) for name, step in rows if trace.name(name) != "data"})


def cell(scope: ts.Scope, model: nn.Module, turns: int) -> None:
    scope.wrap(model)
    for number in scope.steps(range(10)):
        model(torch.ones(1))
        scope.log(number=number)
        if number == turns - 1:
            break


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_cell_run_again_is_a_run_of_its_own_and_the_first_one_has_ended(
    tmp_path: Path, dry_run: bool
) -> None:
    model = nn.Linear(1, 1)
    for turns in (3, 4, 2):
        scope = ts.Scope(tmp_path / "run", dry_run=dry_run)
        cell(scope, model, turns)
        assert sum("trainscope-worker" in each.name for each in threading.enumerate()) == 1
    scope.close()
    del scope
    for name, turns in (("run", 3), ("run-2", 4), ("run-3", 2)):
        recorded = [("forward", step) for step in range(turns)]
        assert names_and_steps(tmp_path / name) == recorded + [
            ("step", step) for step in range(turns)
        ]
        logged = read_metrics(tmp_path / name / "rank0" / "metrics.jsonl")
        assert [dict(each.values) for each in logged] == [{"number": n} for n in range(turns)]


def test_a_cell_interrupted_in_a_window_leaves_the_next_run_its_window(tmp_path: Path) -> None:
    schedule = ts.Schedule(wait=1, warmup=1, active=3)
    for turns in (4, 8):
        scope = ts.Scope(tmp_path / "run", schedule=schedule)
        cell(scope, nn.Linear(1, 1), turns)
    scope.close()
    capture = scope.report().capture
    assert capture is not None
    assert (capture.windows, capture.complete) == (1, True)


def test_a_scope_is_held_by_the_loop_that_goes_through_its_steps(tmp_path: Path) -> None:
    for _ in ts.Scope(tmp_path / "outer").steps(range(2)):
        inner = ts.Scope(tmp_path / "inner")
        assert list(inner.steps(range(2))) == [0, 1]
        inner.close()
    ts.Scope(tmp_path / "last").close()
    assert names_and_steps(tmp_path / "outer") == [("step", 0), ("step", 1)]


def test_with_no_other_scope_a_dropped_one_goes_on_recording(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)

    def set_up() -> None:
        ts.Scope(tmp_path / "run").wrap(model)

    set_up()
    model(torch.ones(1))
    ts.Scope(tmp_path / "last").close()
    assert names_and_steps(tmp_path / "run") == [("forward", -1)]


def test_a_scope_of_another_thread_s_loop_is_left_to_that(tmp_path: Path) -> None:
    def loop() -> None:
        scope = ts.Scope(tmp_path / "theirs")
        assert list(scope.steps(range(2))) == [0, 1]
        del scope
        ts.Scope(tmp_path / "next").close()

    thread = threading.Thread(target=loop)
    with ts.Scope(tmp_path / "mine") as mine:
        thread.start()
        thread.join()
        assert list(mine.steps(range(2))) == [0, 1]
    assert names_and_steps(tmp_path / "theirs") == names_and_steps(tmp_path / "mine")
