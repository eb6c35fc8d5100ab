"""Steps of unedited programs: each count exact, or "cannot tell" with its reason."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from launched import under_run

import trainscope

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def expected(program: Path, what: str, default: str | None = None) -> str:
    """A value that the program's docstring states."""
    docstring = program.read_text().split('"""')[1]
    found = re.search(rf"^{what}: (.+)$", docstring, re.MULTILINE)
    if found is None and default is not None:
        return default
    assert found is not None, f"{program.name} states no {what}"
    return found[1]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_steps_are_those_that_the_docstring_counts(program: Path, tmp_path: Path) -> None:
    words = ("--sync", "off", "--active", "0", "--run-dir", str(tmp_path / "run"), str(program))
    done = under_run(*words, cwd=tmp_path)
    assert done.status == int(expected(program, "exit status", "0")), done.err
    steps = trainscope.analyze(trainscope.load(tmp_path / "run")).steps
    counted_by = steps.counted_by or ""
    count = expected(program, "steps")
    if sys.version_info < (3, 11):
        count = expected(program, "steps before Python 3.11", count)
    if count == "cannot tell":
        assert counted_by.startswith("cannot tell: "), counted_by
        assert len(counted_by) > len("cannot tell: ") + 20
    else:
        assert counted_by.startswith("trainscope run: "), counted_by
        assert steps.count == int(count)
    assert steps.optimizer_steps == int(expected(program, "optimizer steps"))
