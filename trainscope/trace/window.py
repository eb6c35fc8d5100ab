"""``Window``: one captured stretch as columns: what CPU threads called and what the GPU ran.

Times are int64 nanoseconds of the capture's own clock. A place that is not known is -1. Every
table is sorted by ``start_ns``, so that searching in it is one ``numpy.searchsorted``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "LONGEST_NS",
    "Calls",
    "Column",
    "CopyKind",
    "GpuOps",
    "Memory",
    "OpKind",
    "Spans",
    "SyncKind",
    "Syncs",
    "Thread",
    "Window",
]

Column = NDArray[np.int64]
LONGEST_NS = 86_400 * 10**9
"""A day: no call and no GPU op lasts so long, and many that do would run over their sums."""
Table = TypeVar("Table", bound="_Table")


class OpKind(IntEnum):
    """What a GPU op is."""

    KERNEL = 0
    COPY = 1
    SET = 2


class CopyKind(IntEnum):
    """Between which memories a copy went."""

    UNKNOWN = 0
    H2D = 1
    D2H = 2
    D2D = 3
    PEER = 4


class Memory(IntEnum):
    """Where the host side of a copy lay."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2


class SyncKind(IntEnum):
    """What CUDA says a wait was for; ``STREAM_WAIT`` makes a stream wait and no CPU thread."""

    STREAM = 0
    EVENT = 1
    DEVICE = 2
    STREAM_WAIT = 3


@dataclass(frozen=True)
class Thread:
    """A CPU thread of the process."""

    pid: int
    tid: int
    name: str


@dataclass(frozen=True, eq=False)
class _Table:
    """Columns of one length."""

    start_ns: Column
    end_ns: Column

    def __len__(self) -> int:
        return len(self.start_ns)

    @classmethod
    def of(cls: type[Table], columns: Mapping[str, ArrayLike]) -> Table:
        """Columns of one length by name, brought into the order of their starts.

        A column that is not given is all -1. Of equal starts the one that ends last comes first,
        so that what is around stands before what is inside.
        """
        length = len(np.asarray(columns.get("start_ns", ())))
        given = {
            field.name: np.asarray(columns.get(field.name, np.full(length, -1)), dtype=np.int64)
            for field in fields(cls)
        }
        order = np.lexsort((-given["end_ns"], given["start_ns"]))
        return cls(**{name: column[order] for name, column in given.items()})

    @classmethod
    def empty(cls: type[Table]) -> Table:
        """No row."""
        return cls.of({"start_ns": (), "end_ns": ()})

    def take(self: Table, rows: ArrayLike) -> Table:
        """The rows that a mask or an array of places picks."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


@dataclass(frozen=True, eq=False)
class Spans(_Table):
    """Intervals of CPU threads; on one thread they nest. Operators, ranges or Python functions."""

    name_id: Column
    thread: Column
    """A place in ``Window.threads``."""
    shape_id: Column
    """A place in ``Window.shapes``; -1 where the shapes of the inputs were not recorded."""


@dataclass(frozen=True, eq=False)
class Calls(_Table):
    """Calls of the CUDA runtime and driver: launches, copies, waits, event records and others."""

    name_id: Column
    thread: Column
    correlation: Column
    """What ties a call to the GPU ops it enqueued, and to the entry in ``Syncs``; -1 for none."""


@dataclass(frozen=True, eq=False)
class GpuOps(_Table):
    """Kernels, copies and memsets."""

    name_id: Column
    kind: Column
    """An ``OpKind``."""
    device: Column
    stream: Column
    correlation: Column
    """That of the call that enqueued it; all ops of one replay of a CUDA graph share one."""
    bytes: Column
    """Moved or set; -1 for kernels."""
    copy_kind: Column
    """A ``CopyKind``; -1 for other ops."""
    host_memory: Column
    """A ``Memory``; -1 for ops that touch no host memory."""


@dataclass(frozen=True, eq=False)
class Syncs(_Table):
    """CUDA's own record of waits, where it was switched on."""

    kind: Column
    """A ``SyncKind``."""
    device: Column
    stream: Column
    """The stream waited for, or for ``STREAM_WAIT`` the one that waits; -1 for all."""
    correlation: Column
    event_stream: Column
    """``STREAM_WAIT`` and ``EVENT``: the stream the event was recorded on; -1 where not known."""
    event_correlation: Column
    """Correlation of the call that recorded the event; -1 where not known."""
    event_id: Column
    """A number of the event itself, the same for each wait on it; -1 where not known."""


@dataclass(frozen=True, eq=False)
class Window:
    """One captured stretch of one rank."""

    file: str
    """Path of the file it was read from."""
    source: str
    """``torch.profiler`` or ``nsys``."""
    names: tuple[str, ...]
    """Every ``name_id`` is a place in here."""
    shapes: tuple[str, ...]
    threads: tuple[Thread, ...]
    devices: tuple[str, ...]
    """Names of the GPUs by device number; shorter where they are not known."""
    ops: Spans
    """Operators (``aten::mm``)."""
    ranges: Spans
    """``record_function`` annotations and NVTX ranges, by name; ``ProfilerStep#7`` among them."""
    frames: Spans
    """Python functions, named ``file(line): function``; empty where stacks were not recorded."""
    calls: Calls
    gpu: GpuOps
    syncs: Syncs
    unix_ns_at_zero: int | None
    """Unix time of 0 on this clock; None where it is not known."""
    has_sync_records: bool
    """Whether CUDA's record of waits was on, so that an empty ``syncs`` means none."""
    problems: tuple[str, ...]
    """What is missing or was left out in reading, in words, the worst first."""
    rank_of: tuple[int, int] | None = None
    """Which rank recorded it, of how many; None where the file does not tell."""
