"""Programs run twice: by Python alone, and under ``trainscope run``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

__all__ = ["UNDER_RUN", "Ended", "alone", "under_run", "write"]

UNDER_RUN = [sys.executable, "-m", "trainscope", "run"]


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    status: int
    out: str
    err: str


def write(folder: Path, name: str, text: str) -> Path:
    """Write a program and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def alone(*words: str, cwd: Path, stdin: str = "") -> Ended:
    """``python WORDS``."""
    return _ended([sys.executable, *words], cwd, stdin)


def under_run(*words: str, cwd: Path, stdin: str = "") -> Ended:
    """``trainscope run WORDS``."""
    return _ended([*UNDER_RUN, *words], cwd, stdin)


def _ended(command: list[str], cwd: Path, stdin: str) -> Ended:
    done = subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=120
    )
    return Ended(done.returncode, done.stdout, done.stderr)
