"""Where a scope is made: odd directories, odd environments, odd arguments of the program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import trainscope as ts
from trainscope.errors import ConfigError, RunDirectoryError, TrainscopeError
from trainscope.record.world import this_process


def recorded(run_dir: object) -> tuple[Path, list[int]]:
    """Three steps, and what a reader finds of them."""
    with ts.Scope(run_dir) as scope:  # type: ignore[arg-type]
        for _ in scope.steps(range(3)):
            pass
    trace = ts.load(scope.run_dir)
    return scope.run_dir, trace.ranges.step[trace.ranges.depth == 0].tolist()


@pytest.mark.parametrize(
    "name",
    ["a b  c", "ü/日本", "a\nb", "-x", "%s{}", "[red]", "\x1b[31m", os.fsdecode(b"x\xff\xfe")],
    ids=ascii,
)
def test_any_name_that_a_directory_can_have(tmp_path: Path, name: str) -> None:
    assert recorded(tmp_path / name) == (tmp_path / name, [0, 1, 2])
    assert ts.analyze(ts.load(tmp_path / name)).steps.count == 3


@pytest.mark.parametrize(
    "name", ["x" * 300, "/".join(["d" * 200] * 30), "x\0y", "x\ud800", "file", "file/x", "loop"]
)
def test_a_name_that_cannot_be_one_is_refused_in_words(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RunDirectoryError, match="directory"):
        ts.Scope(f"{tmp_path}/{name}")


@pytest.mark.parametrize("name", [5, None, b"runs", ["runs"]])
def test_what_is_no_path_is_refused(name: object) -> None:
    with pytest.raises(ConfigError, match="run_dir"):
        ts.Scope(name)  # type: ignore[arg-type]


def test_a_relative_name_is_meant_from_where_the_program_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with ts.Scope("run") as scope:
        os.chdir("elsewhere")
        list(scope.steps(range(3)))
    assert scope.report().steps.count == 3
    assert scope.run_dir == tmp_path / "run"


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert recorded(tmp_path / "run")[1] == [0, 1, 2]
    with pytest.raises(RunDirectoryError, match="working directory that is deleted"):
        ts.Scope("run")


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        *[("abc", "2"), ("", ""), ("0", "0"), ("-1", "4"), ("4", "4"), ("0", "-3"), ("1", "x")],
        *[("0", "99999999999"), ("1.0", "2")],
    ],
)
def test_an_environment_that_names_no_rank_is_noted(
    rank: str, size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    assert recorded(tmp_path)[1] == [0, 1, 2]
    (note,) = ts.load(tmp_path).info.notes
    assert f"RANK={rank!r} and WORLD_SIZE={size!r}" in note


def test_a_rank_without_a_world_is_some_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    world = this_process()
    assert (world.rank, world.size, world.note) == (0, 1, None)


def test_a_launch_of_another_number_of_ranks_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks 2 and 3 of a second launch on the same port would go into the run of the first."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    ids = []
    for size in (2, 4, 4):
        monkeypatch.setenv("WORLD_SIZE", str(size))
        monkeypatch.setenv("RANK", str(len(ids)))
        ids.append(this_process().launch_id)
    assert ids[0] != ids[1]
    assert ids[1] == ids[2]


@pytest.mark.parametrize("argv", [[1, Path("x")], ("a",), None, 5, ["a\ud800"], [b"x"]], ids=ascii)
def test_argv_may_hold_anything(
    argv: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert recorded(tmp_path)[1] == [0, 1, 2]


def test_argv_may_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "argv")
    assert recorded(tmp_path)[1] == [0, 1, 2]


def test_a_refused_scope_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    import threading

    before = threading.active_count()
    with pytest.raises(TrainscopeError):
        ts.Scope(tmp_path / "file")
    assert threading.active_count() == before


def test_a_debugger_that_slows_the_steps_is_told(tmp_path: Path) -> None:
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        with ts.Scope(tmp_path / "traced") as scope, scope.step():
            pass
    finally:
        sys.settrace(before)
    (note,) = scope.report().notes
    assert note.startswith("a debugger or another tracer was on (sys.settrace)")
    if before is None:
        with ts.Scope(tmp_path / "plain") as scope, scope.step():
            pass
        assert scope.report().notes == []
