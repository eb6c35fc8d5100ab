"""``read_torch_trace``: from a file to a ``Window``."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from trainscope.trace.device_limit import with_possible_devices
from trainscope.trace.torch_trace.events import Distributed, Document, Event
from trainscope.trace.torch_trace.problems import LeftOut, problems
from trainscope.trace.torch_trace.source import Progress, pieces
from trainscope.trace.torch_trace.split import Frame, batches
from trainscope.trace.torch_trace.tables import OP_KINDS, Places, Rows, Threads, copy_of, sync_of
from trainscope.trace.window import Calls, GpuOps, OpKind, Spans, Syncs, Thread, Window

__all__ = ["read_torch_trace"]

_OLD_NAMES = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
"""Categories as torch wrote them before 1.12."""

_LARGEST_WORLD = 1_000_000


def read_torch_trace(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Window:
    """The window in a JSON or JSON.gz file of torch.profiler (``export_chrome_trace``).

    What is missing or had to be left out is said in ``Window.problems``. Times are exact, to the
    nanosecond or, where torch before 2.3 wrote no more, to the microsecond. ``progress`` is told
    how many bytes of how many have been read.
    Raises TraceError, with the place, for a file that is no such trace.
    """
    given = Path(path)
    frame = Frame()
    reading = _Reading()
    for batch in batches(given, pieces(given, progress), frame):
        reading.add(batch)
    return reading.window(str(given), frame)


class _Reading:
    """The tables of one window while they grow."""

    def __init__(self) -> None:
        self.names: Places = Places()
        self.shapes: Places = Places()
        self.threads = Threads()
        self.thread_names: dict[tuple[object, object], str] = {}
        self.ops, self.ranges, self.frames = Rows.of(Spans), Rows.of(Spans), Rows.of(Spans)
        self.calls, self.gpu, self.syncs = Rows.of(Calls), Rows.of(GpuOps), Rows.of(Syncs)
        self.odd_syncs = 0
        self.halves = 0

    def add(self, events: Iterable[Event]) -> None:
        """Sort the events by what they are."""
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[event.cat].append(event)
            elif event.ph == "M" and event.name == "thread_name":
                self.thread_names[event.pid, event.tid] = event.args.name
            elif event.ph in ("B", "E"):
                self.halves += 1
        for old, new in _OLD_NAMES.items():
            if old in groups:
                groups[new] += groups.pop(old)
        self._spans(self.ops, groups["cpu_op"], shaped=True)
        self._spans(self.ranges, groups["user_annotation"])
        self._spans(self.frames, groups["python_function"])
        self._calls(groups["cuda_runtime"] + groups["cuda_driver"])
        for category, kind in OP_KINDS.items():
            self._gpu(groups[category], kind)
        self._syncs(groups["cuda_sync"])

    def _spans(self, rows: Rows, events: list[Event], shaped: bool = False) -> None:
        if not events:
            return
        names, shapes = self.names, self.shapes
        columns: dict[str, object] = {
            "name_id": [names[event.name] for event in events],
            "thread": self.threads.of(events),
        }
        if shaped:
            found = [bytes(event.args.shapes) for event in events]
            columns["shape_id"] = [shapes[text] if len(text) > 2 else -1 for text in found]
        rows.add(events, columns)

    def _calls(self, events: list[Event]) -> None:
        if not events:
            return
        names = self.names
        self.calls.add(
            events,
            {
                "name_id": [names[event.name] for event in events],
                "thread": self.threads.of(events),
                "correlation": [_whole(event.args.correlation) for event in events],
            },
        )

    def _gpu(self, events: list[Event], kind: OpKind) -> None:
        if not events:
            return
        names = self.names
        size = len(events)
        copies = [(-1, -1)] * size
        if kind is OpKind.COPY:
            known: dict[str, tuple[int, int]] = {}
            for event in events:
                if event.name not in known:
                    known[event.name] = copy_of(event.name)
            copies = [known[event.name] for event in events]
        self.gpu.add(
            events,
            {
                "name_id": [names[event.name] for event in events],
                "kind": [int(kind)] * size,
                "device": [_number(event.args.device, event.pid) for event in events],
                "stream": [_number(event.args.stream, event.tid) for event in events],
                "correlation": [_whole(event.args.correlation) for event in events],
                "bytes": [_whole(event.args.bytes) for event in events],
                "copy_kind": [copy for copy, _ in copies],
                "host_memory": [memory for _, memory in copies],
            },
        )

    def _syncs(self, events: list[Event]) -> None:
        kinds = [sync_of(event.args.sync_kind or event.name) for event in events]
        known = [event for event, kind in zip(events, kinds, strict=True) if kind >= 0]
        self.odd_syncs += len(events) - len(known)
        if not known:
            return
        self.syncs.add(
            known,
            {
                "kind": [kind for kind in kinds if kind >= 0],
                "device": [_number(event.args.device, event.pid) for event in known],
                "stream": [_whole(event.args.stream) for event in known],
                "correlation": [_whole(event.args.correlation) for event in known],
                "event_stream": [_whole(event.args.event_stream) for event in known],
                "event_correlation": [_whole(event.args.event_correlation) for event in known],
                "event_id": [_whole(event.args.event_id) for event in known],
            },
        )

    def window(self, file: str, frame: Frame) -> Window:
        """What was read, with what is wrong in it."""
        tables = (self.ops, self.ranges, self.frames, self.calls, self.gpu, self.syncs)
        firsts = [first for rows in tables if (first := rows.first_ns()) is not None]
        base_ns = min(firsts, default=0)
        document = frame.document
        gpu, calls = self.gpu.table(GpuOps, base_ns), self.calls.table(Calls, base_ns)
        syncs = self.syncs.table(Syncs, base_ns)
        found = Window(
            file=file,
            source="torch.profiler",
            names=tuple(self.names),
            shapes=tuple(map(_shape_text, self.shapes)),
            threads=tuple(
                Thread(_as_number(pid), _as_number(tid), self._named(pid, tid))
                for pid, tid in self.threads.keys_by_place
            ),
            devices=_devices(document),
            ops=self.ops.table(Spans, base_ns),
            ranges=self.ranges.table(Spans, base_ns),
            frames=self.frames.table(Spans, base_ns),
            calls=calls,
            gpu=gpu,
            syncs=syncs,
            unix_ns_at_zero=_unix_ns(document, base_ns),
            has_sync_records=len(syncs) > 0,
            problems=(),
            rank_of=_rank_of(document),
        )
        left_out = LeftOut(sum(rows.bad_time for rows in tables), self.odd_syncs, self.halves)
        return with_possible_devices(replace(found, problems=problems(found, frame, left_out)))

    def _named(self, pid: object, tid: object) -> str:
        return self.thread_names.get((pid, tid), f"thread {tid}")


def _shape_text(text: bytes) -> str:
    """``[[8, 4], []]``, however it was spaced in the file."""
    return "".join(text.decode("utf-8", "replace").split()).replace(",", ", ")


def _devices(document: Document) -> tuple[str, ...]:
    named = {device.id: device.name for device in document.deviceProperties if device.id >= 0}
    return tuple(named.get(i, "") for i in range(max(named, default=-1) + 1 if named else 0))


def _rank_of(document: Document) -> tuple[int, int] | None:
    """Its rank and how many there are; None where torch.distributed was not in use."""
    try:
        found = msgspec.json.decode(document.distributedInfo, type=Distributed)
    except msgspec.MsgspecError:
        return None
    possible = 0 <= found.rank < found.world_size <= _LARGEST_WORLD
    return (found.rank, found.world_size) if possible else None


def _unix_ns(document: Document, base_ns: int) -> int | None:
    """Unix time of the first event; torch before 2.3 wrote unix times themselves."""
    if base_ns > 10**18:
        return base_ns
    if document.baseTimeNanoseconds is not None:
        return document.baseTimeNanoseconds + base_ns
    return None


def _whole(value: int) -> int:
    """A number that fits a column; correlation ids are unsigned 32 bits where they are none."""
    return value if -1 <= value < 2**62 and value != 2**32 - 1 else -1


def _number(value: int, instead: int | str) -> int:
    """``value``, or the number of the track where it is missing."""
    if value < 0 and isinstance(instead, int):
        return _whole(instead)
    return _whole(value)


def _as_number(value: object) -> int:
    return _whole(value) if isinstance(value, int) else -1
