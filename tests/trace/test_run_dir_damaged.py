"""Run directories that something else wrote into: each fault is named, nothing is waited for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import ITEM, full_trace, trace, write_run

from trainscope.errors import RunDirectoryError, TrainscopeError
from trainscope.trace.load import load

FILES = ("ranges.i64", "names.json", "syncs.json", "counts.json", "metrics.json", "captures.json")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "mlp", full_trace()).path


def put(file: Path, change: Callable[[Any], object]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_folder_or_a_pipe_in_the_place_of_a_file(
    run: Path, name: str, make: Callable[[Path], None]
) -> None:
    file = run / "rank0" / name
    file.unlink()
    make(file)
    with pytest.raises(RunDirectoryError) as caught:
        load(run)
    assert str(caught.value) == f"{file} is no regular file; trainscope did not write it"


def test_a_pipe_in_the_place_of_a_window_is_left_out(run: Path) -> None:
    os.mkfifo(run / "rank0" / "trace-000.json.gz")
    (note,) = load(run).notes
    assert note.startswith("a captured window is left out: ")
    assert "trace-000.json.gz is no regular file" in note


@pytest.mark.parametrize("field", ["line", "count", "timed", "blocked_ns_total", "steps"])
@pytest.mark.parametrize("value", [-1, 2**63, 10**400])
def test_counts_that_no_run_has(run: Path, field: str, value: int) -> None:
    def change(syncs: Any) -> object:
        syncs["sites"][0][field] = value
        return syncs

    put(run / "rank0" / "syncs.json", change)
    with pytest.raises(RunDirectoryError, match=rf"syncs\.json at sites\.0\.{field}: Input should"):
        load(run)


def test_a_run_is_no_other_tools_recording(run: Path) -> None:
    put(run / "run.json", lambda info: {**info, "source": "nsys"})
    with pytest.raises(RunDirectoryError, match=r"run\.json at source: it holds 'nsys'"):
        load(run)


def test_half_of_a_surrogate_pair_becomes_a_question_mark(run: Path) -> None:
    put(run / "run.json", lambda info: {**info, "device": "a\ud800b 😀"})
    put(run / "rank0" / "names.json", lambda names: ["\udfff", *names[1:]])
    read = load(run)
    assert (read.info.device, read.names[0]) == ("a?b 😀", "?")


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000])
def test_a_name_that_is_too_long(tmp_path: Path, name: str) -> None:
    with pytest.raises(TrainscopeError, match=r"File name too long|does not exist"):
        load(tmp_path / name)


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "mlp", trace(syncs=(ITEM,))).path

    def refused(self: Path) -> object:  # root may read anything
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(RunDirectoryError) as caught:
        load(run)
    assert str(caught.value) == f"{run} cannot be read: Permission denied"
