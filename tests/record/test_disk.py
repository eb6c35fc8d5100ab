"""A disk that fills up, and a run directory that others take away, in the middle of a run."""

from __future__ import annotations

import errno
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import trainscope as ts
from trainscope.errors import RunDirectoryError, TraceError
from trainscope.record import names as names_module
from trainscope.record import row_writer
from trainscope.record.recorder import Recorder
from trainscope.record.row_writer import RowWriter
from trainscope.record.unsure_rows import FIELDS
from trainscope.trace.run_dir import RunDirectory


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the disk still takes; a write that does not fit raises and leaves nothing."""
    left = [10**9]
    append = RunDirectory.append_rows

    def limited(directory: RunDirectory, numbers: list[int]) -> None:
        rows = len(numbers) // FIELDS
        if rows > left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= rows
        append(directory, numbers)

    monkeypatch.setattr(RunDirectory, "append_rows", limited)
    return left


def steps(recorder: Recorder, numbers: range) -> None:
    for number in numbers:
        recorder.begin_step(number)
        recorder.end_step()


def written(directory: RunDirectory) -> list[int]:
    return ts.load(directory.path).ranges.step.tolist()


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory.create(tmp_path / "run", launch_id="a")
    made.write_names(["step"])
    return made


def test_what_a_full_disk_refused_is_written_once_there_is_room_again(
    directory: RunDirectory, room: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writer, "_ROWS_AT_ONCE", 4)
    recorder = Recorder()
    writer = RowWriter(recorder, directory)
    room[0] = 5
    steps(recorder, range(10))
    with pytest.raises(OSError, match="No space"):
        writer.write()
    assert writer.refused == 6
    assert written(directory) == [0, 1, 2, 3]
    steps(recorder, range(10, 13))
    with pytest.raises(OSError, match="No space"):
        writer.write()
    assert writer.refused == 9
    room[0] = 100
    writer.write()
    assert writer.refused == 0
    assert written(directory) == list(range(13))


def test_rows_that_wait_for_a_full_disk_are_bounded_and_counted(
    directory: RunDirectory, room: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writer, "MAX_WAITING_ROWS", 20)
    recorder = Recorder()
    writer = RowWriter(recorder, directory)
    room[0] = 0
    for first in range(0, 100, 10):
        steps(recorder, range(first, first + 10))
        try:
            writer.write()
        except OSError:
            assert writer.refused <= 20
    assert recorder.rows_dropped + writer.refused == 100


def test_a_report_says_how_many_ranges_a_full_disk_refused(tmp_path: Path, room: list[int]) -> None:
    room[0] = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ts.Scope(tmp_path / "run") as scope:
            assert list(scope.steps(range(7))) == list(range(7))
    (warning,) = caught
    assert "could not write all of the recording" in str(warning.message)
    report = scope.report()
    assert report.steps.count == 0
    assert report.not_seen == ["14 ranges, steps among them, that the disk did not take in time"]


def remove(run_dir: Path) -> None:
    shutil.rmtree(run_dir)


def remove_rank(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "rank0")


def replace_by_file(run_dir: Path) -> None:
    shutil.rmtree(run_dir)
    run_dir.touch()


def move(run_dir: Path) -> None:
    run_dir.rename(run_dir.with_name("moved"))


@pytest.mark.parametrize("take_away", [remove, remove_rank, replace_by_file, move])
@pytest.mark.parametrize("action", ["always", "error"])
def test_a_run_directory_taken_away_changes_nothing_but_the_recording(
    take_away: Callable[[Path], None],
    action: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)  # type: ignore[arg-type]
        with ts.Scope(tmp_path / "run") as scope:
            for number in scope.steps(range(6)):
                scope.log(loss=number)
                done.append(number)
                if number == 2:
                    scope._session.save()  # type: ignore[union-attr]
                    take_away(scope.run_dir)
    assert done == list(range(6))
    told = [str(each.message) for each in caught] + capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"trainscope could not write all of the recording to {scope.run_dir}")
    if take_away is remove_rank:
        assert scope.report().steps.count == 0
    else:
        with pytest.raises((RunDirectoryError, TraceError)):
            scope.report()


def test_no_number_of_names_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "MAX_NAMES", 5)
    with ts.Scope(tmp_path / "run") as scope:
        for step in range(10):
            with scope.step(), scope.range(f"file {step}"), scope.phase("forward"):
                pass
    trace = ts.load(scope.run_dir)
    assert trace.names == ("step", "file 0", "forward", "file 1", "file 2", "(other names)")
    depth_1 = [trace.names[i] for i in trace.ranges.name_id[trace.ranges.depth == 1]]
    assert depth_1 == ["file 0", "file 1", "file 2", *["(other names)"] * 7]


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    with ts.Scope(tmp_path / "run") as scope:
        for ending in "ab":
            with scope.step(), scope.range("x" * 10**6 + ending):
                pass
    assert ts.load(scope.run_dir).names == ("step", "x" * 199 + "…")


@pytest.mark.parametrize("name", ["", "a\nb", "\0", "\ud800", "[red]", "\x1b[31m", "step"])
def test_any_string_names_a_range(name: str, tmp_path: Path) -> None:
    with ts.Scope(tmp_path / "run") as scope, scope.step(), scope.range(name):
        pass
    trace = ts.load(scope.run_dir)
    shown = name.encode("utf-8", "replace").decode()
    assert [trace.names[i] for i in trace.ranges.name_id] == [shown, "step"]
    assert scope.report().steps.count == 1


@pytest.mark.parametrize("name", [5, None, b"x", ["x"], ("x",)])
def test_what_is_no_string_names_none(name: object, tmp_path: Path) -> None:
    with ts.Scope(tmp_path / "run") as scope, pytest.raises(ts.TrainscopeError, match="name must"):
        scope.range(name)  # type: ignore[arg-type]
