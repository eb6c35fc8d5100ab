"""What trainscope has to say never changes what the program does."""

from __future__ import annotations

import io
import sys
import warnings

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


@pytest.mark.parametrize("stream", [None, closed(), Broken(), object()], ids=repr)
def test_standard_error_may_be_anything(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    notice.say("a word")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notice.warn("a word")
