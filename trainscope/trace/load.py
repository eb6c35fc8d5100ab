"""``load(path)``: a trace from whatever lies at a path."""

from __future__ import annotations

import os
from pathlib import Path

from trainscope.errors import TraceError
from trainscope.trace.ranges import Ranges
from trainscope.trace.read_run import read_run
from trainscope.trace.run_info import RunInfo
from trainscope.trace.torch_trace import read_torch_trace
from trainscope.trace.torch_trace.source import Progress
from trainscope.trace.trace import Trace
from trainscope.trace.window import Window

__all__ = ["load"]

_NSYS = (".sqlite", ".nsys-rep", ".qdrep")


def load(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Trace:
    """Read a run directory, one rank's folder in it, its ``run.json``, or a torch.profiler trace.

    ``progress`` is told how many bytes of how many have been read of a trace. Raises
    RunDirectoryError when it is missing, damaged or no run directory, and TraceError for a file
    that is no trace.
    """
    given = Path(path)
    if not given.is_file() or given.name == "run.json":
        return read_run(given)
    if given.name.endswith(_NSYS):
        raise TraceError(
            f"{given} is a recording of nsys, which this version does not read: give a run "
            "directory, or a trace of torch.profiler"
        )
    return _captured(given, read_torch_trace(given, progress=progress))


def _captured(path: Path, window: Window) -> Trace:
    """A trace of nothing but a window."""
    info = RunInfo(
        launch_id="none",
        created_unix_ns=window.unix_ns_at_zero,
        device=next((name for name in window.devices if name), None),
        source=window.source,
    )
    return Trace(path, 0, info, Ranges.of([]), (), windows=(window,))
