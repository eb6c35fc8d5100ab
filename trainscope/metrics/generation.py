"""One filling of the device rows: what is logged between two flushes."""

from __future__ import annotations

from typing import Any

import torch

from trainscope.metrics.lanes import RowBlock, make_blocks
from trainscope.metrics.split import ROW_LIMIT, Group, Source
from trainscope.metrics.values import capturing, row_kind
from trainscope.trace.metrics import MetricRecord

__all__ = ["ENTRY_LIMIT", "Blocks", "Entry", "Generation"]

ENTRY_LIMIT = 4096
"""``log`` calls in a generation, so that numbers alone cannot fill the memory either."""

_VIEWS_AT_ONCE = 64
_foreach_copy_ = torch._foreach_copy_  # pyright: ignore[reportPrivateImportUsage]
_is_grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled


class Blocks:
    """The blocks of all generations: those of one kind are made at its first value."""

    def __init__(self, generations: int) -> None:
        self._count = generations
        self._spare: dict[tuple[torch.device, str], list[RowBlock]] = {}

    def take(self, device: torch.device, kind: str) -> RowBlock:
        """Return a block that no generation has."""
        spare = self._spare.get((device, kind))
        if not spare:
            spare = make_blocks(device, kind, ROW_LIMIT, self._count)
            self._spare[device, kind] = spare
        return spare.pop()


class Rows:
    """A block and how far it is filled."""

    __slots__ = ("block", "used", "views")

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.used = 0
        self.views: list[torch.Tensor] = []

    def make_views(self, end: int) -> None:
        """Make 0-d views of the rows up to ``end``; they are kept for every later round."""
        while len(self.views) < end:
            start = len(self.views)
            self.views.extend(self.block.buffer[start : start + _VIEWS_AT_ONCE].unbind())


Place = tuple[Rows, int, list[str]]
"""Where one copy went: the rows, the first of them, and the names in order."""


Entry = tuple[int, int, tuple[str, ...], dict[str, float | int], list[Place]]
"""One ``log`` call: step, Unix time in ns, all names in the order given, the numbers among the
values, and where those of the tensors will arrive.

A plain tuple, because anything with named fields takes longer to make, on the loop's thread.
"""


class Generation:
    """Rows for each device and kind, and the entries that point into them.

    It is filled by the loop, sealed, fetched and read by the worker, then filled again; ``serial``
    changes with each filling.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.serial = 0
        self.entries: list[Entry] = []
        self.by_source: dict[Source, Rows] = {}
        """The rows for each device and source dtype met; several dtypes share rows."""
        self._rows: dict[tuple[torch.device, str], Rows] = {}

    def copy(self, groups: list[Group]) -> list[Place] | None:
        """Enqueue one fused copy for each device and dtype; None when they do not fit any more.

        Raises:
            MetricError: the stream is being captured into a CUDA graph.
        """
        places: list[Place] = []
        # the two calls of torch.no_grad(), which itself takes over a microsecond
        grad_was_on = _is_grad_enabled()
        if grad_was_on:
            _set_grad_enabled(False)
        try:
            for source, names, tensors in groups:
                rows = self.by_source.get(source)
                if rows is None:
                    if source[0].type == "cuda" and torch.cuda.is_current_stream_capturing():
                        raise capturing(names[0])  # making rows now would break the capture
                    rows = self._rows_for(source, names[0], tensors[0])
                first = rows.used
                end = first + len(names)
                if end > ROW_LIMIT:
                    return None
                if not rows.block.note_write():
                    raise capturing(names[0])
                if source[1] is torch.uint64:
                    tensors = [tensor.view(torch.int64) for tensor in tensors]
                views = rows.views
                if len(views) < end:
                    rows.make_views(end)
                rows.used = end
                _foreach_copy_(views[first:end], tensors)
                places.append((rows, first, names))
        finally:
            if grad_was_on:
                _set_grad_enabled(True)
        return places

    def _rows_for(self, source: Source, name: str, tensor: torch.Tensor) -> Rows:
        key = source[0], row_kind(name, tensor)
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = Rows(self._blocks.take(*key))
        self.by_source[source] = rows
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
    step, time_unix_ns, all_names, numbers, places = entry
    if not places:
        return MetricRecord(step, time_unix_ns, numbers)
    if not numbers and len(places) == 1:  # most often: all from one copy
        rows, first, names = places[0]
        column = values[id(rows)][first : first + len(names)]
        return MetricRecord(step, time_unix_ns, dict(zip(names, column, strict=True)))
    if len(places) == 1:
        rows, first, names = places[0]
        arrived = iter(values[id(rows)][first : first + len(names)])
        # the tensors stand in the order of the names
        found = {n: numbers[n] if n in numbers else next(arrived) for n in all_names}
        return MetricRecord(step, time_unix_ns, found)
    found = dict(numbers)
    for rows, first, names in places:
        column = values[id(rows)]
        for offset, name in enumerate(names):
            found[name] = column[first + offset]
    return MetricRecord(step, time_unix_ns, {name: found[name] for name in all_names})
