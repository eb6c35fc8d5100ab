"""A logger with a sink that keeps what it gets, and blocks whose copies land when told to."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from trainscope.metrics.lanes import CpuBlock
from trainscope.metrics.logger import MetricsLogger
from trainscope.metrics.records import MetricRecord, Sink, SinkContext
from trainscope.metrics.worker import Worker

NOWHERE = SinkContext(Path("run"), Path("run/rank0"), 0, 1, "run")


class Kept:
    """Keeps every record."""

    name = "kept"

    def __init__(self) -> None:
        self.records: list[MetricRecord] = []
        self.closed = 0

    def open(self, run: SinkContext) -> None:
        self.run = run

    def write(self, records: Sequence[MetricRecord]) -> None:
        self.records += records

    def close(self) -> None:
        self.closed += 1

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        return [(record.step, dict(record.values)) for record in self.records]


class Rig:
    """A logger, its worker and its sinks."""

    def __init__(self, *sinks: Sink, interval_s: float = 0.02, **settings: Any) -> None:
        self.kept = Kept()
        self.worker = Worker(interval_s)
        self.logger = MetricsLogger(
            [self.kept, *sinks], context=NOWHERE, worker=self.worker, **settings
        )

    def close(self, timeout_s: float = 30.0) -> list[tuple[int, dict[str, Any]]]:
        """Close both; what the sink kept."""
        self.logger.close(timeout_s)
        self.worker.close(timeout_s)
        return self.kept.rows()

    def __enter__(self) -> Rig:
        self.worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def logged(*calls: dict[str, Any], **settings: Any) -> list[tuple[int, dict[str, Any]]]:
    """What arrives of these calls, the first at step 0, the second at step 1, and so on."""
    with Rig(**settings) as rig:
        for step, values in enumerate(calls):
            rig.logger.log(step, values)
        return rig.close()


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait for something another thread does."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.001)


class LateBlock(CpuBlock):
    """A device far behind: nothing lands until ``release``; reads before that are a failure."""

    released = False
    made: list[LateBlock]

    def __init__(self, kind: str, capacity: int) -> None:
        super().__init__(kind, capacity)
        self.marked_rows: torch.Tensor | None = None
        self.fetched = 0

    def note_write(self) -> bool:
        assert self.marked_rows is None, "written to before its copy has landed"
        return True

    def mark(self) -> None:
        self.marked_rows = self.buffer.clone()

    def fetch(self, rows: int) -> None:
        assert self.marked_rows is not None, "fetched before it was sealed"
        self.fetched = rows

    def landed(self) -> bool:
        return type(self).released

    def read(self, rows: int) -> list[Any]:
        assert type(self).released, "read before its copy has landed"
        assert self.fetched == rows
        assert self.marked_rows is not None
        assert torch.equal(self.marked_rows, self.buffer), "written to after it was sealed"
        self.marked_rows = None
        return super().read(rows)


class HeldByGraph:
    """Lives as long as the autograd graph that holds it."""


class Doubled(torch.autograd.Function):
    """Twice its input; ``in_graph`` is what the newest graph of it holds, or None."""

    in_graph: Any

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.held = HeldByGraph()
        Doubled.in_graph = weakref.ref(ctx.held)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * 2
