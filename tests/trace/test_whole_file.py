"""A file that a person keeps is the old one or the new one, whatever goes wrong."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainscope.trace.whole_file import how_to_write, write_whole_file


@pytest.mark.parametrize("name", ["write_text", "replace"])
def test_the_old_file_stays_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = tmp_path / "page.html"
    file.write_text("old")
    monkeypatch.setattr(Path if name == "write_text" else os, name, full)
    with pytest.raises(OSError, match="No space left") as found:
        write_whole_file(file, "new")
    assert how_to_write(found.value).startswith("free some space")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert file.read_text() == "old"


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        write_whole_file(pipe, "the report")
        assert read.result(timeout=20) == "the report"
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("place", "step"),
    [("no/page.html", "name a file in a directory that exists"), (".", "name a file in a dir")],
)
def test_a_place_for_no_file_is_told_with_the_next_step(
    tmp_path: Path, place: str, step: str
) -> None:
    with pytest.raises(OSError, match=r"directory") as found:
        write_whole_file(tmp_path / place, "text")
    assert how_to_write(found.value).startswith(step)
