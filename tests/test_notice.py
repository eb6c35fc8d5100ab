"""What trainscope has to say never changes what the program does."""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path

import pytest

from trainscope import notice


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("nobody reads this")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


def test_a_warning_points_at_the_line_that_is_meant() -> None:
    def ours() -> None:
        notice.warn("a word", stacklevel=2)

    with pytest.warns(RuntimeWarning, match="^a word$") as caught:
        ours()
    assert caught[0].filename == __file__


def test_where_warnings_are_errors_the_text_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notice.warn("a word")
    assert capsys.readouterr().err == "a word\n"


def test_a_showwarning_that_fails_is_no_concern_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("the program's own")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", fails)
        notice.warn("a word")
    assert capsys.readouterr().err == "a word\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_leaves_nothing_in_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        notice.say("a word")
        full.flush()


def test_what_the_program_wrote_before_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w", encoding="ascii", errors="backslashreplace") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        stream.write("theirs\n")
        notice.say("où")
        stream.write("theirs\n")
    assert (tmp_path / "out").read_text() == "theirs\no\\xf9\ntheirs\n"


@pytest.mark.parametrize(
    "stream", [None, closed(), Broken(), object()], ids=["none", "closed", "broken", "no stream"]
)
def test_standard_error_may_be_anything(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    notice.say("a word")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notice.warn("a word")
