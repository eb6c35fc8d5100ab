"""A directory that was asked for again: whoever names it is told where the later run went."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from made_runs import INFO, trace, write_run
from typer.testing import CliRunner, Result

from trainscope.cli.check import check
from trainscope.cli.report import report

app = typer.Typer()
app.command()(check)
app.command()(report)


def run(place: Path, *, asked: str, second: int) -> Path:
    settings = {"run_dir": asked}
    info = INFO.model_copy(update={"created_unix_ns": second * 10**9, "settings": settings})
    return write_run(place, trace(info=info)).path


def checked(place: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["check", str(place), "--baseline", "syncs.json", *more])


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs that were all to go to ``ci``, the second of them the newest."""
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "ci-2", asked="runs/ci", second=9)
    run(tmp_path / "ci-3", asked=str(tmp_path / "ci"), second=8)
    return run(tmp_path / "ci", asked="ci", second=7)


def test_the_newest_is_named_on_standard_error(again: Path) -> None:
    later = f"a later run found {again} in use and went to {again}-2: this is the older one\n"
    for more in (["--update"], [], ["--format", "json"]):
        done = checked(again, *more)
        assert (done.exit_code, done.stderr) == (0, f"trainscope check: {later}")
    done = CliRunner().invoke(app, ["report", str(again), "--format", "json"])
    assert (done.exit_code, done.stderr) == (0, f"trainscope report: {later}")


def test_a_directory_named_by_a_dot_is_known_by_its_name(
    again: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(again)
    assert f"went to {again}-2" in checked(Path(), "--update").stderr


def test_the_newest_itself_has_no_later_one(again: Path) -> None:
    newest = again.with_name("ci-2")
    assert (checked(newest, "--update").stderr, checked(newest).stderr) == ("", "")


@pytest.mark.parametrize(("asked", "second"), [("runs/ci-2", 9), ("runs/ci", 6)])
def test_a_run_that_was_named_so_or_came_before_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, second: int
) -> None:
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "ci-2", asked=asked, second=second)
    (tmp_path / "ci-3").mkdir()
    (tmp_path / "ci-4").mkdir()
    (tmp_path / "ci-4" / "run.json").write_text("[")
    place = run(tmp_path / "ci", asked="runs/ci", second=7)
    assert checked(place, "--update").stderr == ""
