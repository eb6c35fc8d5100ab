"""``load(path)``: a trace from whatever lies at a path."""

from __future__ import annotations

import os
from pathlib import Path

from trainscope.errors import RunDirectoryError, TraceError
from trainscope.trace.captured import load_file, load_folder, recordings_in, torch_traces_in
from trainscope.trace.read_run import read_run
from trainscope.trace.torch_trace.source import Progress
from trainscope.trace.trace import Trace

__all__ = ["load"]


def load(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Trace:
    """Read what was recorded: by a Scope, by torch.profiler or by nsys.

    A run directory, one rank's folder in it or its ``run.json``; a trace of torch.profiler, or a
    folder of them that ``tensorboard_trace_handler`` wrote, each worker a rank; an nsys recording
    (``.nsys-rep``, ``.qdrep``) or its SQLite export. ``progress`` is told how many bytes of how
    many have been read of a trace. Raises RunDirectoryError when it is missing, damaged or no run
    directory, and TraceError for a file that is no trace.
    """
    given = Path(path)
    try:
        return _load(given, progress)
    except OSError as error:  # a name too long, a folder that may not be read, a disk that fails
        place = given if error.filename is None else error.filename
        raise RunDirectoryError(f"{place} cannot be read: {error.strerror or error}") from error


def _load(given: Path, progress: Progress | None) -> Trace:
    if not given.exists():
        raise RunDirectoryError(
            f"{given} does not exist; give a directory that a run wrote, or a trace"
        )
    if not (given.is_file() or given.is_dir()):
        raise TraceError(
            f"{given} is a pipe or a device, which cannot be read twice: write it to a file first"
        )
    if given.is_file() and given.name != "run.json":
        return load_file(given, progress)
    if given.is_dir() and not _is_of_a_run(given):
        traces = torch_traces_in(given)
        if traces:
            return load_folder(given, traces, progress)
        found = recordings_in(given)
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise TraceError(
                f"{given} is no run directory, and holds {found[0].name}{more}: name one file"
            )
    return read_run(given)


def _is_of_a_run(folder: Path) -> bool:
    return any(folder.glob("rank*")) or any(
        (place / "run.json").exists() for place in (folder, folder.parent)
    )
