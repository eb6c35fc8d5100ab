"""Growing tables: events go in by lists, columns come out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from trainscope.trace.torch_trace.events import Event
from trainscope.trace.window import LONGEST_NS, Column, CopyKind, Memory, OpKind, SyncKind, Table

__all__ = ["OP_KINDS", "Places", "Rows", "Threads", "copy_of", "sync_of"]

_LIMIT_US = 2.0**62 / 1000
_LONGEST_US = LONGEST_NS / 1000


class Places(dict):  # type: ignore[type-arg]
    """A number for each key, in the order in which they first come."""

    def __missing__(self, key: object) -> int:
        place = self[key] = len(self)
        return place


class Threads(dict):  # type: ignore[type-arg]
    """A number for each thread: ``threads[pid][tid]``, twice as fast as a pair for a key."""

    def __init__(self) -> None:
        self.keys_by_place: list[tuple[object, object]] = []

    def of(self, events: Sequence[Event]) -> Column:
        """The number of each event's thread; quick where all are of one, as most often."""
        pids = [event.pid for event in events]
        tids = [event.tid for event in events]
        if pids.count(pids[0]) == tids.count(tids[0]) == len(events):
            return np.full(len(events), self[pids[0]][tids[0]], dtype=np.int64)
        places = [self[pid][tid] for pid, tid in zip(pids, tids, strict=True)]
        return np.array(places, dtype=np.int64)

    def __missing__(self, pid: object) -> _OfProcess:
        found = self[pid] = _OfProcess(self.keys_by_place, pid)
        return found


class _OfProcess(dict):  # type: ignore[type-arg]
    def __init__(self, keys_by_place: list[tuple[object, object]], pid: object) -> None:
        self._keys = keys_by_place
        self._pid = pid

    def __missing__(self, tid: object) -> int:
        place = self[tid] = len(self._keys)
        self._keys.append((self._pid, tid))
        return place


class Rows:
    """One table while it is read: lists of columns to be joined."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._parts: dict[str, list[Column]] = {name: [] for name in columns}
        self.bad_time = 0
        """Events left out: they begin before 0 or after 146 years, or last less than nothing or
        more than a day."""

    def add(self, events: Sequence[Event], columns: Mapping[str, object]) -> None:
        """Rows of the events, with times in µs turned to ns; a column not given is all -1."""
        begin = np.array([event.ts for event in events], dtype=np.float64)
        length = np.array([event.dur for event in events], dtype=np.float64)
        with np.errstate(invalid="ignore"):
            good = (begin >= 0) & (begin < _LIMIT_US) & (length >= 0) & (length < _LONGEST_US)
        start = _ns(np.where(good, begin, 0))
        end = start + _ns(np.where(good, length, 0))
        everything = {"start_ns": start, "end_ns": end, **columns}
        unknown = np.full(len(events), -1, dtype=np.int64)
        whole = bool(good.all())
        self.bad_time += 0 if whole else int((~good).sum())
        for name, parts in self._parts.items():
            values = everything.get(name)
            column = unknown if values is None else np.asarray(values, dtype=np.int64)
            parts.append(column if whole else column[good])

    def table(self, kind: type[Table], base_ns: int) -> Table:
        """The table, with times from ``base_ns`` on."""
        columns = {
            name: np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
            for name, parts in self._parts.items()
        }
        columns["start_ns"] = columns["start_ns"] - base_ns
        columns["end_ns"] = columns["end_ns"] - base_ns
        return kind.of(columns)

    def first_ns(self) -> int | None:
        """The earliest start."""
        return min((int(part.min()) for part in self._parts["start_ns"] if len(part)), default=None)

    @classmethod
    def of(cls, kind: type[Table]) -> Rows:
        """Rows for a table of that kind."""
        return cls([field.name for field in fields(kind)])


def _ns(us: NDArray[np.float64]) -> Column:
    """Nanoseconds, the whole microseconds apart: together they have more digits than a float."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?")
_DIRECTIONS = {
    "HtoD": CopyKind.H2D,
    "DtoH": CopyKind.D2H,
    "DtoD": CopyKind.D2D,
    "PtoP": CopyKind.PEER,
}
_MEMORIES = {"Pageable": Memory.PAGEABLE, "Pinned": Memory.PINNED}


def copy_of(name: str) -> tuple[int, int]:
    """``CopyKind`` and ``Memory`` of ``Memcpy HtoD (Pageable -> Device)``."""
    found = _COPY.match(name)
    if found is None:
        return int(CopyKind.UNKNOWN), int(Memory.UNKNOWN)
    direction, source, target = found.groups()
    kind = _DIRECTIONS.get(direction, CopyKind.UNKNOWN)
    if kind in (CopyKind.D2D, CopyKind.PEER):
        return int(kind), -1
    host = source if kind is CopyKind.H2D else target
    return int(kind), int(_MEMORIES.get(host or "", Memory.UNKNOWN))


_SYNCS = {
    "stream sync": SyncKind.STREAM,
    "stream synchronize": SyncKind.STREAM,
    "event sync": SyncKind.EVENT,
    "event synchronize": SyncKind.EVENT,
    "context sync": SyncKind.DEVICE,
    "context synchronize": SyncKind.DEVICE,
    "stream wait event": SyncKind.STREAM_WAIT,
}


def sync_of(words: str) -> int:
    """The ``SyncKind`` of a ``cuda_sync_kind``; -1 for one that is not known."""
    return int(_SYNCS.get(words.lower(), -1))


OP_KINDS = {"kernel": OpKind.KERNEL, "gpu_memcpy": OpKind.COPY, "gpu_memset": OpKind.SET}
