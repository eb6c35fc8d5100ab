"""Windows written by hand: rows of a table in the words of a test."""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.trace.window import (
    Calls,
    CopyKind,
    GpuOps,
    Memory,
    OpKind,
    Spans,
    SyncKind,
    Syncs,
    Thread,
    Window,
)

Row = dict[str, int | str]


class Made:
    """Collects rows and makes a ``Window``; times in ns, threads and streams by number."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.shapes: dict[str, int] = {}
        self.ops: list[Row] = []
        self.ranges: list[Row] = []
        self.frames: list[Row] = []
        self.calls: list[Row] = []
        self.gpu: list[Row] = []
        self.syncs: list[Row] = []
        self.next_correlation = 1

    def _span(self, rows: list[Row], name: str, start: int, end: int, thread: int) -> None:
        rows.append({"name": name, "start_ns": start, "end_ns": end, "thread": thread})

    def range(self, name: str, start: int, end: int, thread: int = 0) -> Made:
        self._span(self.ranges, name, start, end, thread)
        return self

    def op(self, name: str, start: int, end: int, thread: int = 0, shape: str = "") -> Made:
        self._span(self.ops, name, start, end, thread)
        if shape:
            self.ops[-1]["shape_id"] = self.shapes.setdefault(shape, len(self.shapes))
        return self

    def frame(self, name: str, start: int, end: int, thread: int = 0) -> Made:
        self._span(self.frames, name, start, end, thread)
        return self

    def call(
        self, name: str, start: int, end: int, thread: int = 0, correlation: int | None = None
    ) -> int:
        """A call; returns its correlation."""
        if correlation is None:
            correlation = self.next_correlation
            self.next_correlation += 1
        self._span(self.calls, name, start, end, thread)
        self.calls[-1]["correlation"] = correlation
        return correlation

    def kernel(
        self,
        start: int,
        end: int,
        correlation: int = -1,
        *,
        name: str = "kernel",
        device: int = 0,
        stream: int = 7,
    ) -> Made:
        self.gpu.append(
            {
                "name": name,
                "start_ns": start,
                "end_ns": end,
                "kind": OpKind.KERNEL,
                "device": device,
                "stream": stream,
                "correlation": correlation,
            }
        )
        return self

    def copy(
        self,
        start: int,
        end: int,
        correlation: int,
        copy_kind: CopyKind,
        memory: Memory = Memory.PAGEABLE,
        *,
        size: int = 4,
        device: int = 0,
        stream: int = 7,
    ) -> Made:
        self.kernel(start, end, correlation, name="Memcpy", device=device, stream=stream)
        self.gpu[-1] |= {
            "kind": OpKind.COPY,
            "copy_kind": copy_kind,
            "host_memory": memory,
            "bytes": size,
        }
        return self

    def launch(self, at: int, start: int, end: int, *, cost: int = 5, **where: int | str) -> Made:
        """A kernel with the call that enqueued it at ``at``; ``thread`` is the caller's."""
        thread = int(where.pop("thread", 0))
        correlation = self.call("cudaLaunchKernel", at, at + cost, thread)
        return self.kernel(start, end, correlation, **where)  # pyright: ignore

    def wait(
        self,
        start: int,
        end: int,
        *,
        name: str = "cudaStreamSynchronize",
        thread: int = 0,
        kind: SyncKind | None = None,
        stream: int = 7,
        device: int = 0,
        event_correlation: int = -1,
    ) -> Made:
        """A waiting call, with CUDA's own record of it where a kind is given."""
        correlation = self.call(name, start, end, thread)
        if kind is not None:
            self.syncs.append(
                {
                    "start_ns": start,
                    "end_ns": end,
                    "kind": kind,
                    "device": device,
                    "stream": stream,
                    "correlation": correlation,
                    "event_correlation": event_correlation,
                }
            )
        return self

    def _columns(self, rows: Sequence[Row]) -> dict[str, list[int]]:
        keys = {key for row in rows for key in row} - {"name"}
        columns = {key: [int(row.get(key, -1)) for row in rows] for key in keys}
        if rows and "name" in rows[0]:
            columns["name_id"] = [
                self.names.setdefault(str(row["name"]), len(self.names)) for row in rows
            ]
        return columns

    def window(self, *, sync_records: bool = False, source: str = "torch.profiler") -> Window:
        ops, ranges, frames = (self._columns(r) for r in (self.ops, self.ranges, self.frames))
        calls, gpu, syncs = (self._columns(r) for r in (self.calls, self.gpu, self.syncs))
        spans = self.ops + self.ranges + self.frames + self.calls
        threads = 1 + max((int(row["thread"]) for row in spans), default=0)
        return Window(
            file="made.json",
            source=source,
            names=tuple(self.names),
            shapes=tuple(self.shapes),
            threads=tuple(Thread(1, 100 + i, f"thread {i}") for i in range(threads)),
            devices=("H200",),
            ops=Spans.of(ops),
            ranges=Spans.of(ranges),
            frames=Spans.of(frames),
            calls=Calls.of(calls),
            gpu=GpuOps.of(gpu),
            syncs=Syncs.of(syncs),
            unix_ns_at_zero=None,
            has_sync_records=sync_records,
            problems=(),
        )


def empty_window() -> Window:
    """No row at all."""
    return Made().window()
