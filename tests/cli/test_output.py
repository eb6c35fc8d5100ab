"""What the verbs write: one line for an error, and no character that ends them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import ITEM, site, trace, write_run
from typer.testing import CliRunner

from trainscope.cli.main import app

VERBS = (
    ["report", "{}"],
    ["compare", "{}", "{}"],
    ["check", "{}", "--baseline", "{}/none.json"],
)


@pytest.mark.parametrize("verb", VERBS, ids=lambda words: words[0])
@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\u202eevil", "a\r", "\x07"])
def test_an_error_is_one_line_that_drives_no_terminal(verb: list[str], name: str) -> None:
    done = CliRunner().invoke(app, [word.format(name) for word in verb])
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"trainscope {verb[0]}: ")
    assert line.isprintable()


@pytest.mark.parametrize("verb", VERBS, ids=lambda words: words[0])
def test_a_directory_whose_name_is_no_text(tmp_path: Path, verb: list[str]) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    run = write_run(Path(odd), trace(syncs=(ITEM,))).path
    if verb[0] == "check":
        updated = CliRunner().invoke(app, ["check", odd, "--baseline", f"{run}/n.json", "--update"])
        assert updated.exit_code == 0
        verb = [*verb[:-1], f"{run}/n.json"]
    for format in ("text", "json"):
        done = CliRunner().invoke(app, [*(w.format(odd) for w in verb), "--format", format])
        assert done.exit_code == 0, done.exception
        if format == "json":
            json.loads(done.stdout)


def test_an_output_that_knows_few_characters(tmp_path: Path) -> None:
    """As a pipe on Windows: its encoding has no such letters, and the words still arrive."""
    run = write_run(tmp_path / "mlp", trace(syncs=(site(source="損失.item()"),))).path
    program = "from trainscope.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "compare", str(run), str(run)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Steps took as long as before" in done.stdout
