"""TensorBoard event files (extra ``tensorboard``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainscope.metrics.records import MetricRecord, SinkContext
from trainscope.metrics.sinks.needed import require

__all__ = ["TensorBoard"]


class TensorBoard:
    """Writes each metric as a scalar curve, with the time it was logged.

    TensorBoard stores scalars in single precision.

    Args:
        log_dir: folder of the event files; default ``tensorboard`` in the rank's folder.

    Raises:
        MissingDependencyError: tensorboard is not installed, or older than 2.14.
    """

    name = "tensorboard"

    def __init__(self, log_dir: str | os.PathLike[str] | None = None) -> None:
        require("tensorboard", "sinks.TensorBoard")
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._writer: Any = None

    def open(self, run: SinkContext) -> None:
        """Start an event file."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._log_dir or run.rank_dir / "tensorboard"))

    def write(self, records: Sequence[MetricRecord]) -> None:
        """Add the scalars and flush, so that what was written survives a kill."""
        for record in records:
            for name, value in record.values.items():
                self._writer.add_scalar(
                    name, value, record.step, walltime=record.time_unix_ns / 1e9
                )
        self._writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        self._writer.close()
