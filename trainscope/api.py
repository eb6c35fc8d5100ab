"""``load`` and ``analyze``: from what a run wrote to its report."""

from __future__ import annotations

import os
from pathlib import Path

from trainscope.errors import TraceError
from trainscope.report.build import build
from trainscope.report.model import Report
from trainscope.trace.read_run import read_run
from trainscope.trace.trace import Trace

__all__ = ["analyze", "load"]

_FOREIGN = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".qdrep")


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a run directory, one rank's folder in it, or its ``run.json``.

    Raises RunDirectoryError when it is missing, damaged or no run directory, and TraceError for a
    trace of another tool.
    """
    given = Path(path)
    if given.name != "run.json" and given.name.endswith(_FOREIGN):
        raise TraceError(
            f"{given} is a trace of torch.profiler or nsys; this version reads run directories "
            "only: give the directory that a Scope or `trainscope run` wrote, such as runs/mlp"
        )
    return read_run(given)


def analyze(trace: Trace) -> Report:
    """The report of a trace; several ranks give the report of the first and a summary of all."""
    return build(trace)
