"""The fixture that runs a marked program and compares."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from dry_programs import expected_of, run_file

from trainscope.sync.dry import DryRun


@pytest.fixture
def check(tmp_path: Path) -> Callable[[str], DryRun]:
    """Run a program and compare what is found with its markers, exactly."""

    def check(program: str) -> DryRun:
        source = textwrap.dedent(program).lstrip("\n")
        path = tmp_path / "program.py"
        path.write_text(source)
        found, dry_run, _ = run_file(str(path))
        assert found == expected_of(source)
        return dry_run

    return check
