"""One JSON object a line, appended at each flush."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainscope.metrics.records import MetricRecord, SinkContext
from trainscope.trace.metrics import encode

__all__ = ["Jsonl"]


class Jsonl:
    """Appends ``{"step": …, "time_unix_ns": …, "loss": …}`` lines; the default sink.

    What arrives together is one write, so a killed process leaves at most one torn last line.
    Non-finite values are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.

    Args:
        path: the file; default ``metrics.jsonl`` in the rank's folder of the run directory.
    """

    name = "jsonl"

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._descriptor = -1

    def open(self, run: SinkContext) -> None:
        """Create the file, or append to it."""
        path = self._path or run.rank_dir / "metrics.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(path, flags, 0o644)

    def write(self, records: Sequence[MetricRecord]) -> None:
        """Append the records with one write."""
        data = encode(records)
        while data:  # a full disk or a signal may take less than all
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
