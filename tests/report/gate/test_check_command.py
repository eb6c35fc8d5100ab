"""``trainscope check``: exit status, the file it writes, and every way a file can be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from made_runs import ITEM, site, trace, write_run
from typer.testing import CliRunner

from trainscope.cli.check import check

app = typer.Typer()
app.command()(check)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "mlp", trace(syncs=(ITEM,))).path


def test_write_pass_fail(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "syncs.json"
    asked = [str(run), "--baseline", str(file)]
    first = CliRunner().invoke(app, asked)
    assert (first.exit_code, first.stdout) == (2, "")
    assert first.stderr == (
        f"trainscope check: --baseline {file} does not exist: write it from this run with "
        "--update, read it, and commit it\n"
    )
    written = CliRunner().invoke(app, [*asked, "--update"])
    assert (written.exit_code, written.stdout) == (0, f"{file}: 1 known sync written\n")
    assert json.loads(file.read_text())["syncs"] == [
        {
            **{"file": "train.py", "function": "main", "source": "if loss.item() > 1e9:"},
            **{"kind": "item", "lines": 1, "per_step": 1.0, "reason": None},
        }
    ]
    assert CliRunner().invoke(app, asked).exit_code == 0
    worse = write_run(tmp_path / "worse", trace(syncs=(ITEM, site(source="new")))).path
    failed = CliRunner().invoke(app, [str(worse), "--baseline", str(file), "--format", "json"])
    assert failed.exit_code == 1
    assert [each["what"] for each in json.loads(failed.stdout)["breaches"]] == ["new sync"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no JSON"),
        (b"\xff\xfe", "byte 0 is no UTF-8"),
        (b"[]", "at its top: Input should be a valid dictionary"),
        (b'{"schema_version": 2}', "has schema_version 2, this trainscope reads 1"),
        (b'{"budgets": {"step_m": 1}}', "at budgets.step_m: no such name; allowed are step_ms, "),
        (
            b'{"syncs": [{"file": "a", "function": "f", "source": "s", "kind": "k", "line": 3}]}',
            "at syncs.0.line: no such name; allowed are file, ",
        ),
        (b'{"budget": {}}', "at budget: no such name; allowed are schema_version, "),
        (b'{"budgets": {"step_ms": -1}}', "at budgets.step_ms: Input should be greater than"),
        (b'{"budgets": {"step_ms": NaN}}', "at budgets.step_ms: "),
        (b'{"syncs": [{"file": "a"}]}', "at syncs.0.function: Field required"),
        (b"[" * 100_000, "is no JSON"),
    ],
)
def test_a_baseline_that_is_none(run: Path, tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "syncs.json"
    file.write_bytes(content)
    for more in ([], ["--update"]):
        done = CliRunner().invoke(app, [str(run), "--baseline", str(file), *more])
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr
        assert str(file) in done.stderr
    assert file.read_bytes() == content


def test_a_place_that_cannot_be_written(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "no" / "syncs.json"
    done = CliRunner().invoke(app, [str(run), "--baseline", str(file), "--update"])
    assert done.exit_code == 2
    assert "name a file in a directory that exists" in done.stderr
    done = CliRunner().invoke(app, [str(run), "--baseline", str(tmp_path)])
    assert done.exit_code == 2
    assert "cannot be read: Is a directory" in done.stderr
