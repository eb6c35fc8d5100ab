"""The body of ``trainscope report``, in an app of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from made_runs import full_trace, write_run
from typer.testing import CliRunner

from trainscope import api
from trainscope.cli.report import report
from trainscope.report import json as json_renderer
from trainscope.report import text

app = typer.Typer()
app.command()(report)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "mlp", full_trace()).path


def test_text_is_the_default_and_starts_with_the_verdict(run: Path) -> None:
    done = CliRunner().invoke(app, [str(run)])
    expected = text.render(api.analyze(api.load(run)))
    assert (done.exit_code, done.stdout) == (0, expected)
    assert expected.startswith("train.py:42 made the CPU wait 10.7 ms of every 20.4 ms step")


def test_json_is_the_report_and_nothing_else(run: Path) -> None:
    done = CliRunner().invoke(app, [str(run), "--format", "json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["steps"]["count"] == 480


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_file_gets_what_the_screen_would(run: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, [str(run), "--format", kind, "-o", str(out)])
    assert (done.exit_code, done.stdout) == (0, "")
    made = api.analyze(api.load(run))
    expected = text.render(made) if kind == "text" else json_renderer.render(made)
    assert out.read_text(encoding="utf-8") == expected


def test_faults_are_one_line_on_standard_error_and_status_2(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [str(tmp_path / "nowhere")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"trainscope report: {tmp_path / 'nowhere'} does not exist; "
        "give a directory that a run wrote, or a trace\n"
    )
    done = CliRunner().invoke(app, [str(run), "-o", str(tmp_path / "no" / "out")])
    assert done.exit_code == 2
    assert done.stderr.endswith(
        "cannot be written: No such file or directory; name a file in a directory that exists\n"
    )
    done = CliRunner().invoke(app, [str(run), "--keep", "train.py:42"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "trainscope report: keep='train.py:42' is no place that waits in the captured window; "
        "known are none: nothing waits in it\n"
    )
