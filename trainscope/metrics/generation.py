"""One filling of the device rows: what is logged between two flushes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trainscope.metrics.lanes import RowBlock, make_block
from trainscope.trace.metrics import MetricRecord

__all__ = ["ENTRY_LIMIT", "ROW_LIMIT", "Entry", "Generation"]

ROW_LIMIT = 4096
"""Rows of one kind on one device in a generation: 32 KiB at most."""
ENTRY_LIMIT = 4096
"""``log`` calls in a generation, so that numbers alone cannot fill the memory either."""

_VIEWS_AT_ONCE = 64


@dataclass(frozen=True)
class Entry:
    """One ``log`` call: the numbers, and where the tensors' values will arrive."""

    step: int
    time_unix_ns: int
    names: tuple[str, ...]
    """In the order given."""
    numbers: dict[str, float | int]
    places: tuple[tuple[Rows, int, list[str]], ...]
    """For each copy: the rows, the first row, and the names in order."""


class Rows:
    """A block and how far it is filled."""

    __slots__ = ("block", "used", "views")

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.used = 0
        self.views: list[torch.Tensor] = []

    def reserve(self, count: int) -> list[torch.Tensor]:
        """Take the next ``count`` rows, as 0-d views (made once, kept for every later round)."""
        first = self.used
        end = first + count
        while len(self.views) < end:
            start = len(self.views)
            self.views.extend(self.block.buffer[start : start + _VIEWS_AT_ONCE].unbind())
        self.used = end
        return self.views[first:end]


class Generation:
    """Rows for each device and kind, and the entries that point into them.

    It is filled by the loop, sealed, fetched and read by the worker, then filled again; ``serial``
    changes with each filling.
    """

    def __init__(self) -> None:
        self.serial = 0
        self.entries: list[Entry] = []
        self.by_source: dict[tuple[torch.device, torch.dtype], Rows] = {}
        """The rows for each device and source dtype met; several dtypes share rows."""
        self._rows: dict[tuple[torch.device, str], Rows] = {}

    def rows(self, device: torch.device, kind: str) -> Rows:
        """Return the rows of one kind on one device, allocated at their first use."""
        rows = self._rows.get((device, kind))
        if rows is None:
            rows = Rows(make_block(device, kind, ROW_LIMIT))
            self._rows[(device, kind)] = rows
        return rows

    def may_seal(self) -> bool:
        """Whether a thread that does not log may seal it now."""
        return all(rows.block.may_mark() for rows in self._rows.values() if rows.used)

    def seal(self) -> None:
        """No more values: note the place in the streams that wrote."""
        for rows in self._rows.values():
            if rows.used:
                rows.block.mark()

    def fetch(self) -> None:
        """Enqueue the copies to the host."""
        for rows in self._rows.values():
            if rows.used:
                rows.block.fetch(rows.used)

    def landed(self) -> bool:
        """Whether all copies are complete; never waits."""
        return all(rows.block.landed() for rows in self._rows.values() if rows.used)

    def read(self) -> list[MetricRecord]:
        """The records of a landed generation, in the order they were logged."""
        values: dict[int, list[Any]] = {
            id(rows): rows.block.read(rows.used) for rows in self._rows.values() if rows.used
        }
        return [_record(entry, values) for entry in self.entries]

    def reset(self) -> None:
        """Make it empty for the next filling."""
        self.serial += 1
        self.entries = []
        for rows in self._rows.values():
            rows.used = 0


def _record(entry: Entry, values: dict[int, list[Any]]) -> MetricRecord:
    if not entry.places:
        return MetricRecord(entry.step, entry.time_unix_ns, entry.numbers)
    found = dict(entry.numbers)
    for rows, first, names in entry.places:
        column = values[id(rows)]
        for offset, name in enumerate(names):
            found[name] = column[first + offset]
    ordered = {name: found[name] for name in entry.names}
    return MetricRecord(entry.step, entry.time_unix_ns, ordered)
