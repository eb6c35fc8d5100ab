"""A run that found its directory in use went to a numbered sibling: who names the old one is told.

Otherwise ``trainscope run --run-dir runs/ci … && trainscope check runs/ci`` would, the second time,
hold the first run against the baseline, and pass.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from trainscope.trace.trace import Trace

__all__ = ["later_run", "tell_of_a_later_run"]


def tell_of_a_later_run(verb: str, trace: Trace) -> None:
    """One line on standard error where the directory was asked for again, by a later run."""
    from trainscope.report.text_parts import plain

    later = later_run(trace)
    if later is not None:
        words = f"a later run found {trace.path} in use and went to {later}: this is the older one"
        typer.echo(plain(f"trainscope {verb}: {words}"), err=True)


def later_run(trace: Trace) -> Path | None:
    """The newest run that asked for the directory of this one and went to a sibling of it."""
    began_ns = trace.info.created_unix_ns
    if trace.info.source != "run" or began_ns is None:
        return None
    later = [each for each in _moved(trace.path) if each[0] > began_ns]
    return max(later)[1] if later else None


def _moved(asked: Path) -> Iterator[tuple[int, Path]]:
    """When each began that ``asked`` was too full for, and where it is."""
    absolute = Path(os.path.abspath(asked))
    name = absolute.name
    try:
        siblings = [each for each in absolute.parent.iterdir() if _numbered(each, name)]
    except OSError:
        return
    for sibling in siblings:
        info = _info(sibling / "run.json")
        settings, began_ns = info.get("settings"), info.get("created_unix_ns")
        wished = settings.get("run_dir") if isinstance(settings, dict) else None
        if isinstance(wished, str) and isinstance(began_ns, int) and Path(wished).name == name:
            yield began_ns, asked.with_name(sibling.name) if asked.name == name else sibling


def _numbered(path: Path, name: str) -> bool:
    return re.fullmatch(rf"{re.escape(name)}-\d+", path.name) is not None


def _info(file: Path) -> dict[str, Any]:
    from trainscope.errors import RunDirectoryError
    from trainscope.trace.json_file import read_json

    try:
        data = read_json(file)
    except RunDirectoryError:  # it is not the run that was asked about
        return {}
    return data if isinstance(data, dict) else {}
