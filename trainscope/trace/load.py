"""``load(path)``: a trace from whatever lies at a path."""

from __future__ import annotations

import os
from pathlib import Path

from trainscope.errors import TraceError
from trainscope.trace.read_run import read_run
from trainscope.trace.trace import Trace

__all__ = ["load"]

_FOREIGN = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".qdrep")


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a run directory, one rank's folder in it, or its ``run.json``.

    Raises RunDirectoryError when it is missing, damaged or no run directory, and TraceError for a
    trace that another tool wrote.
    """
    given = Path(path)
    if given.name != "run.json" and given.name.endswith(_FOREIGN) and given.is_file():
        raise TraceError(
            f"{given} is a trace of torch.profiler or nsys, and this version reads run directories "
            "only: give the directory that a Scope or `trainscope run` wrote, such as runs/mlp"
        )
    return read_run(given)
