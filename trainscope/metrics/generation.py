"""One filling of the device rows: what is logged between two flushes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter_ns, time_ns

import torch
from torch import Tensor

from trainscope.metrics.entries import Entry, records_of
from trainscope.metrics.lanes import RowBlock, make_blocks
from trainscope.metrics.split import ROW_LIMIT, Group, Source, Tensors
from trainscope.metrics.values import capturing
from trainscope.trace.metrics import MetricRecord

__all__ = ["ENTRY_LIMIT", "RECORDS_AT_ONCE", "Blocks", "Generation"]

ENTRY_LIMIT = 4096
"""``log`` calls in a generation, so that numbers alone cannot fill the memory either."""

RECORDS_AT_ONCE = 256
"""Made at a time: some 200 µs in which the loop may have to wait for the interpreter."""

_VIEWS_AT_ONCE = 64
_foreach_copy_ = torch._foreach_copy_  # pyright: ignore[reportPrivateImportUsage]
_copy_ = torch._C.TensorBase.copy_
"""The one beneath ``Tensor.copy_``, around which the detector has a wrapper."""
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

    __slots__ = ("block", "note_write", "used", "views")

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.note_write = block.note_write
        self.used = 0
        self.views: list[Tensor] = []

    def make_views(self, end: int) -> None:
        """Make 0-d views of the rows up to ``end``; they are kept for every later round."""
        while len(self.views) < end:
            start = len(self.views)
            self.views.extend(self.block.buffer[start : start + _VIEWS_AT_ONCE].unbind())


class Generation:
    """Rows for each device and kind, and the entries that point into them.

    It is filled by the loop, sealed, fetched and read by the worker, then filled again: then
    ``entries`` is another list.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.entries: list[Entry] = []
        self._by_source: dict[Source, Rows] = {}
        """The rows for each source met; several dtypes share rows."""
        self._rows: dict[tuple[torch.device, str], Rows] = {}
        self._unix_ns_at_0 = 0

    def copy(self, groups: Sequence[Group], tensors: Sequence[Tensors]) -> tuple[int, ...]:
        """Enqueue copies of each group's tensors; return its first row, or () if they do not fit.

        The tensors of a group take one launch. Where several groups have but one tensor, these
        take a launch each, all from one call.

        Raises:
            MetricError: the stream is being captured into a CUDA graph.
            RuntimeError: a tensor is not 0-d.
        """
        # the two calls of torch.no_grad(), which itself takes over a microsecond
        grad_was_on = _is_grad_enabled()
        if grad_was_on:
            _set_grad_enabled(False)
        try:
            if len(groups) > 1:
                return self._copy_several(groups, tensors)
            group, some = groups[0], tensors[0]
            rows = self._by_source.get(group.source) or self._rows_for(group)
            first = rows.used
            end = first + group.count
            if end > ROW_LIMIT:
                return ()
            if not rows.note_write():
                raise capturing(group.names[0])
            views = rows.views
            if len(views) < end:
                rows.make_views(end)
            rows.used = end
            if not group.fused:
                _copy_each(views[first:end], some)
            else:
                _foreach_copy_(views[first:end], some)
            return (first,)
        finally:
            if grad_was_on:
                _set_grad_enabled(True)

    def _copy_several(self, groups: Sequence[Group], tensors: Sequence[Tensors]) -> tuple[int, ...]:
        first_rows: list[int] = []
        alone: list[tuple[Tensor, Tensor]] = []
        for group, some in zip(groups, tensors):  # noqa: B905 (as many, and saying so costs)
            rows = self._by_source.get(group.source) or self._rows_for(group)
            first = rows.used
            end = first + group.count
            if end > ROW_LIMIT:
                return ()
            if not rows.note_write():
                raise capturing(group.names[0])
            views = rows.views
            if len(views) < end:
                rows.make_views(end)
            rows.used = end
            first_rows.append(first)
            if group.fused:
                _foreach_copy_(views[first:end], some)
            elif group.source.fuses:
                alone.append((views[first], some[0]))
            else:
                _copy_each(views[first:end], some)
        if alone:
            rows_alone, tensors_alone = zip(*alone, strict=True)
            _foreach_copy_(rows_alone, tensors_alone)
        return tuple(first_rows)

    def _rows_for(self, group: Group) -> Rows:
        source = group.source
        if source.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise capturing(group.names[0])  # making rows now would break the capture
        key = source.device, source.kind
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = Rows(self._blocks.take(*key))
        self._by_source[source] = rows
        return rows

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written, not even by a call that is still under way."""
        return not self.entries and not any(rows.used for rows in self._rows.values())

    def may_seal(self) -> bool:
        """Whether a thread that does not log may seal it now."""
        return all(rows.block.may_mark() for rows in self._rows.values() if rows.used)

    def seal(self) -> None:
        """No more values: note the place in the streams that wrote."""
        self._unix_ns_at_0 = time_ns() - perf_counter_ns()
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

    def read(self) -> Iterator[list[MetricRecord]]:
        """The records of a landed generation, in the order they were logged, some at a time."""
        of_rows = {rows: rows.block.read(rows.used) for rows in self._rows.values() if rows.used}
        arrived = {
            source: of_rows[rows] for source, rows in self._by_source.items() if rows in of_rows
        }
        for start in range(0, len(self.entries), RECORDS_AT_ONCE):
            some = self.entries[start : start + RECORDS_AT_ONCE]
            yield records_of(some, arrived, self._unix_ns_at_0)

    def reset(self) -> None:
        """Make it empty for the next filling."""
        self.entries = []
        for rows in self._rows.values():
            rows.used = 0


def _copy_each(views: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    for view, tensor in zip(views, tensors, strict=True):
        _copy_(view, tensor.view(torch.int64) if tensor.dtype is torch.uint64 else tensor)
