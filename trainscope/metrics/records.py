"""What a sink gets, and what it must offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainscope.trace.metrics import MetricRecord

__all__ = ["MetricRecord", "Sink", "SinkContext"]


@dataclass(frozen=True)
class SinkContext:
    """Where a run lies and which rank this is."""

    run_dir: Path
    rank_dir: Path
    rank: int
    world_size: int
    run_name: str


class Sink(Protocol):
    """Takes records as they arrive.

    The three methods run on a thread of the sink's own, one after the other, so each may be slow
    or raise: neither the loop nor another sink waits for it. An optional attribute ``note`` (str
    or None) is shown in ``MetricsState``.
    """

    @property
    def name(self) -> str:
        """Short name for messages."""
        ...

    def open(self, run: SinkContext) -> None:
        """Called once, before the first ``write``."""
        ...

    def write(self, records: Sequence[MetricRecord]) -> None:
        """Take one flush; when it raises, these records count as dropped."""
        ...

    def close(self) -> None:
        """Called once, after the last ``write``."""
        ...
