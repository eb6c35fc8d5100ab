"""Programs run twice: by Python alone, and under ``trainscope run``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from warm import TRAINSCOPE, Ended, Running, cold, warm, warm_script

__all__ = [
    "Ended",
    "alone",
    "in_place",
    "on_two_ranks",
    "start_under_run",
    "under_cold_run",
    "under_run",
    "write",
]


def write(folder: Path, name: str, text: str) -> Path:
    """Write a program and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def alone(*words: str, cwd: Path, stdin: str = "") -> Ended:
    """``python WORDS``."""
    return cold(*words, cwd=cwd, stdin=stdin).end()


def in_place(place: Path, text: str) -> Ended:
    """``python train.py`` in the folder of the fixture ``place``, with torch loaded."""
    return warm_script(place, dedent(text)).end()


def start_under_run(*words: str, cwd: Path, stdin: str = "") -> Running:
    """Start ``trainscope run WORDS``."""
    return warm(TRAINSCOPE, "run", *words, cwd=cwd, stdin=stdin)


def under_run(*words: str, cwd: Path, stdin: str = "") -> Ended:
    """``trainscope run WORDS``."""
    return start_under_run(*words, cwd=cwd, stdin=stdin).end()


def under_cold_run(*words: str, cwd: Path) -> Ended:
    """``trainscope run WORDS`` in a Python that has imported nothing yet."""
    return cold(*TRAINSCOPE.words, "run", *words, cwd=cwd).end()


def on_two_ranks(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``torchrun --nproc-per-node 2 WORDS``, which has to end well."""
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, "-m", *launch, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done
