"""TensorBoard event files (extra ``tensorboard``)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainscope.errors import MissingDependencyError
from trainscope.metrics.records import MetricRecord, SinkContext

__all__ = ["TensorBoard"]


class TensorBoard:
    """Writes each metric as a scalar curve, with the time it was logged.

    TensorBoard stores scalars in single precision.

    Args:
        log_dir: folder of the event files; default ``tensorboard`` in the rank's folder.

    Raises:
        MissingDependencyError: the package is not installed.
    """

    name = "tensorboard"

    def __init__(self, log_dir: str | os.PathLike[str] | None = None) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise MissingDependencyError(
                "sinks.TensorBoard needs the tensorboard package: "
                "pip install 'trainscope[tensorboard]'"
            )
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
