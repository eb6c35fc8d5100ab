"""One filling of the device rows: what is logged between two flushes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter_ns, time_ns

import torch
from torch import Tensor

from trainscope.metrics.entries import Entry, records_of
from trainscope.metrics.gather import GatherError
from trainscope.metrics.rows import Blocks, Rows
from trainscope.metrics.split import ROW_LIMIT, Group, Layout, Source, Tensors
from trainscope.metrics.values import capturing
from trainscope.trace.metrics import MetricRecord

__all__ = ["ENTRY_LIMIT", "RECORDS_AT_ONCE", "Generation"]

ENTRY_LIMIT = 4096
"""``log`` calls in a generation, so that numbers alone cannot fill the memory either."""

RECORDS_AT_ONCE = 256
"""Made at a time: some 200 µs in which the loop may have to wait for the interpreter."""

_foreach_copy_ = torch._foreach_copy_  # pyright: ignore[reportPrivateImportUsage]
_copy_ = torch._C.TensorBase.copy_
"""The one beneath ``Tensor.copy_``, around which the detector has a wrapper."""
_data_ptr = torch._C.TensorBase.data_ptr
_is_grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled


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

    def copy(self, layout: Layout, tensors: Sequence[Tensors]) -> Sequence[int]:
        """Enqueue copies of each group's tensors; return its first row, or () if they do not fit.

        On a GPU all take one launch, where the layout has a ``Gather``; else each group takes one.

        Raises:
            MetricError: the stream is being captured into a CUDA graph.
        """
        groups, gather = layout.groups, layout.gather
        if gather is None or not gather.ready:
            return self._copy(groups, tensors)
        first_rows: list[int] = []
        to: list[int] = []
        from_: list[int] = []
        stream = 0
        for group, some in zip(groups, tensors):  # noqa: B905 (as many, and saying so costs)
            from_ += map(_data_ptr, some)
            rows = self._by_source.get(group.source) or self._rows_for(group)
            first = rows.used
            end = first + group.count
            if end > ROW_LIMIT:
                return ()
            if not rows.note_write():
                raise capturing(group.names[0])
            rows.used = end
            row_bytes = rows.row_bytes
            to += range(rows.address + first * row_bytes, rows.address + end * row_bytes, row_bytes)
            first_rows.append(first)
            stream = rows.block.stream
        if 0 in from_:  # its memory was taken away: torch has the words for that
            return self._copy(groups, tensors)
        try:
            gather.launch(stream, to, from_)
        except GatherError:
            return self._copy(groups, tensors)
        return first_rows

    def _copy(self, groups: Sequence[Group], tensors: Sequence[Tensors]) -> tuple[int, ...]:
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
