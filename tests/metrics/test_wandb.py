"""Everything logged is in the ``.wandb`` files, the program's values and ours."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wandb_file import history, run_record

from trainscope.metrics.outlet import Outlet
from trainscope.metrics.records import MetricRecord, SinkContext
from trainscope.metrics.sinks import Wandb
from trainscope.metrics.sinks import wandb as sink_module

wandb = pytest.importorskip("wandb")

LATE = 3
STEPS = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    yield tmp_path
    if wandb.run is not None:
        wandb.finish()
    wandb.teardown()  # it reads the environment once


def outlet(folder: Path, sink: Wandb, rank: int = 0) -> Outlet:
    return Outlet(sink, SinkContext(folder, folder, rank, 1, "mlp"))


def give(out: Outlet, *records: MetricRecord) -> None:
    """Hand the records over and wait until the sink has taken them."""
    out.offer(records)
    deadline_s = time.monotonic() + 30
    while not out.idle:
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def end(out: Outlet) -> None:
    out.finish()
    out.join(time.monotonic() + 60)
    assert out.state().error is None
    assert out.state().dropped == 0


def ours(step: int) -> MetricRecord:
    return MetricRecord(step, 1_000 + step, {"loss": step / 8, "tokens": 2**60 + step})


def files(folder: Path) -> dict[str, Path]:
    """The runs on disk by their id, once wandb's service has written them out."""
    wandb.teardown()
    return {path.stem.removeprefix("run-"): path for path in folder.glob("wandb/off*/run-*.wandb")}


def values(path: Path) -> list[dict[str, Any]]:
    """The rows without wandb's own clocks."""
    return [
        {key: value for key, value in row.items() if key not in ("_timestamp", "_runtime")}
        for row in history(path)
    ]


def in_own_run(path: Path) -> list[tuple[int, float, int]]:
    return [(row["_step"], row["loss"], row["tokens"]) for row in values(path)]


def in_their_run(path: Path) -> list[tuple[int, float, int]]:
    return [
        (row["trainscope/step"], row["trainscope/loss"], row["trainscope/tokens"])
        for row in values(path)
        if "trainscope/step" in row
    ]


ALL_OF_OURS = [(step, step / 8, 2**60 + step) for step in range(STEPS)]


def test_a_run_of_our_own_holds_each_value_at_its_step(folder: Path) -> None:
    out = outlet(folder, Wandb(project="demo", name="given"))
    give(out, *map(ours, range(STEPS)))
    end(out)
    (path,) = files(folder).values()
    assert in_own_run(path) == ALL_OF_OURS
    assert (run_record(path).project, run_record(path).display_name) == ("demo", "given")


def test_the_run_is_named_after_the_run_directory(folder: Path) -> None:
    out = outlet(folder, Wandb(project="demo"))
    end(out)
    (path,) = files(folder).values()
    assert run_record(path).display_name == "mlp"


@pytest.mark.parametrize("how", ["passed", "active"])
@pytest.mark.parametrize("style", ["with_step", "without_step"])
def test_in_the_programs_run_nothing_is_lost(folder: Path, how: str, style: str) -> None:
    """Ours come three steps late; the program logs twice a step, as many do."""
    theirs = wandb.init(project="demo", group="both")
    assert theirs is not None
    out = outlet(folder, Wandb(run=theirs) if how == "passed" else Wandb())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(STEPS):
            keyword = {"step": step} if style == "with_step" else {}
            theirs.log({"a": step * 10}, **keyword)
            if step >= LATE:
                give(out, ours(step - LATE))
            theirs.log({"b": step * 100}, **keyword)
        give(out, *(ours(step) for step in range(STEPS - LATE, STEPS)))
        end(out)
    theirs.finish()
    runs = files(folder)
    rows = values(runs.pop(theirs.id))
    assert [row["a"] for row in rows if "a" in row] == [s * 10 for s in range(STEPS)]
    assert [row["b"] for row in rows if "b" in row] == [s * 100 for s in range(STEPS)]
    messages = [str(warning.message) for warning in told]
    if style == "with_step":
        assert [(row["_step"], row["a"], row["b"]) for row in rows] == [
            (s, s * 10, s * 100) for s in range(STEPS)
        ]
        ((identifier, path),) = runs.items()
        assert in_own_run(path) == ALL_OF_OURS
        assert (run_record(path).run_group, run_record(path).project) == ("both", "demo")
        assert len(messages) == 1
        assert identifier in messages[0]
        assert "it is logged to with step=" in messages[0]
    else:
        path = next(iter(folder.glob(f"wandb/off*/run-{theirs.id}.wandb")))
        assert in_their_run(path) == ALL_OF_OURS
        assert (runs, messages) == ({}, [])


def test_a_program_that_takes_up_step_later(folder: Path) -> None:
    theirs = wandb.init(project="demo")
    assert theirs is not None
    out = outlet(folder, Wandb(run=theirs))
    theirs.log({"a": 0})
    give(out, ours(0), ours(1))
    theirs.log({"a": 1}, step=1000)
    with pytest.warns(RuntimeWarning, match="now logged to with step="):
        give(out, *map(ours, range(2, STEPS)))
        end(out)
    theirs.log({"a": 2}, step=1001)
    theirs.finish()
    runs = files(folder)
    path = runs.pop(theirs.id)
    assert [row["a"] for row in values(path) if "a" in row] == [0, 1, 2]
    (own,) = runs.values()
    assert in_their_run(path) + in_own_run(own) == ALL_OF_OURS


def test_what_wandb_drops_of_theirs_is_told(folder: Path) -> None:
    theirs = wandb.init(project="demo")
    assert theirs is not None
    out = outlet(folder, Wandb(run=theirs, without_step=False))
    theirs.log({"a": 0})
    give(out, *map(ours, range(5)))
    theirs.log({"epoch": 1}, step=1)
    with pytest.warns(RuntimeWarning, match="dropped what the program logged at step 1"):
        give(out, ours(5))
        end(out)
    theirs.finish()


def test_a_program_that_never_logs_keeps_its_steps_to_itself(folder: Path) -> None:
    now_s = [100.0]
    theirs = wandb.init(project="demo")
    assert theirs is not None
    out = outlet(folder, Wandb(run=theirs, clock_s=lambda: now_s[0]))
    give(out, ours(0))
    now_s[0] += sink_module.HOLD_S - 0.1
    give(out, ours(1))
    assert out.state().note is None
    now_s[0] += 0.1
    with pytest.warns(RuntimeWarning, match="not been logged to yet"):
        give(out, *map(ours, range(2, STEPS)))
    theirs.log({"epoch": 1}, step=0)
    end(out)
    theirs.finish()
    runs = files(folder)
    assert [(r["_step"], r["epoch"]) for r in values(runs.pop(theirs.id))] == [(0, 1)]
    (own,) = runs.values()
    assert in_own_run(own) == ALL_OF_OURS


def test_the_promise_shares_at_once(folder: Path) -> None:
    theirs = wandb.init(project="demo")
    assert theirs is not None
    out = outlet(folder, Wandb(run=theirs, without_step=True))
    give(out, *map(ours, range(STEPS)))
    end(out)
    theirs.finish()
    ((identifier, path),) = files(folder).items()
    assert identifier == theirs.id
    assert in_their_run(path) == ALL_OF_OURS


def test_what_comes_after_the_program_finished_its_run(folder: Path) -> None:
    theirs = wandb.init(project="demo")
    assert theirs is not None
    out = outlet(folder, Wandb(run=theirs))
    theirs.log({"a": 0})
    give(out, *map(ours, range(4)))
    theirs.finish()
    with pytest.warns(RuntimeWarning, match="has been finished"):
        give(out, *map(ours, range(4, STEPS)))
        end(out)
    runs = files(folder)
    path = runs.pop(theirs.id)
    (own,) = runs.values()
    assert in_their_run(path) + in_own_run(own) == ALL_OF_OURS


def test_our_run_is_not_in_the_way_of_a_later_one_of_the_program(folder: Path) -> None:
    out = outlet(folder, Wandb(project="demo"))
    give(out, ours(0))
    assert wandb.run is None
    theirs = wandb.init(project="theirs")
    assert theirs is not None
    theirs.log({"a": 1}, step=0)
    theirs.finish()
    give(out, *map(ours, range(1, STEPS)))
    end(out)
    runs = files(folder)
    assert values(runs.pop(theirs.id)) == [{"a": 1, "_step": 0}]
    (own,) = runs.values()
    assert in_own_run(own) == ALL_OF_OURS


def test_a_run_without_a_name_is_called_by_its_id(folder: Path) -> None:
    theirs = wandb.init(project="demo")
    assert theirs is not None
    assert theirs.name is None  # offline
    out = outlet(folder, Wandb(run=theirs, without_step=True))
    give(out, ours(0))
    end(out)
    theirs.finish()
    assert out.state().note == f"run {theirs.id} of the program, as trainscope/*"


def test_other_ranks_are_silent(folder: Path) -> None:
    out = outlet(folder, Wandb(project="demo"), rank=1)
    give(out, ours(0))
    end(out)
    assert files(folder) == {}
    assert out.state().note == "only rank 0 writes to wandb"


def test_wandb_is_imported_only_when_used() -> None:
    program = "import sys, trainscope.metrics.sinks.wandb as w; w.Wandb(project='x'); "
    program += "sys.exit('wandb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
