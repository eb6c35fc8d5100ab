"""Sort the values of one ``log`` call: plain numbers, and tensors by where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import Tensor

from trainscope.errors import MetricError
from trainscope.metrics.values import check_name, host_number, row_kind, scalar

__all__ = ["ROW_LIMIT", "Group", "Layout", "Source", "Split", "Splitter"]

ROW_LIMIT = 4096
"""Rows of one kind on one device between two flushes: 32 KiB at most."""

_LAYOUT_LIMIT = 64
"""Layouts kept: a loop has a few ``log`` calls, and names that change are not to pile up."""

_NO_FUSED_COPY = {
    torch.uint64,
    torch.uint32,
    torch.uint16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
}
"""Dtypes that ``_foreach_copy_`` has no CUDA kernel for, although ``copy_`` has."""

_is_cpu, _dtype, _device_index = attrgetter("is_cpu"), attrgetter("dtype"), Tensor.get_device

Pick = Callable[[Sequence[Any]], list[Any] | tuple[Any, ...]]
"""Takes some of the values of a call, in the order of their positions."""


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """Where tensors lie and what they hold.

    One object for each pair, looked up by its identity: a ``torch.device`` takes a fifth of a
    microsecond to hash.
    """

    device: torch.device
    dtype: torch.dtype
    kind: str
    """The rows that its values go to, of ``ROW_DTYPES``."""
    fuses: bool
    """Whether one kernel can copy many tensors of it."""


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """The tensors of a call that have one source."""

    source: Source
    names: tuple[str, ...]
    count: int
    pick: Pick
    dtypes: list[torch.dtype]
    device_indices: list[int]
    """What its tensors answer when asked, all the same."""


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """Which values of a call are numbers, and which are tensors of what source."""

    names: tuple[str, ...]
    """In the order given."""
    types: list[type]
    """Of the values: ``float``, ``int`` or ``Tensor``."""
    number_count: int
    pick_numbers: Pick
    groups: tuple[Group, ...]
    in_order: Pick | None
    """From the numbers and then the values of each group to the order of the names; None: the same.
    """


Split = tuple[Layout, Sequence[float | int], list[tuple[Tensor, ...] | list[Tensor]]]
"""How the values of a call lie; the Python numbers; the 0-d tensors of each group."""


class Splitter:
    """Sorts the values of each call, quickly where it looks like one before.

    A loop logs the same names with tensors of the same dtypes and devices, step after step: then
    nothing has to be found out, only checked.
    """

    def __init__(self) -> None:
        self._sources: dict[tuple[torch.device, torch.dtype], Source] = {}
        self._layouts: dict[tuple[str, ...], Layout] = {}
        """The last one of each call's names, where its values could be taken as they are."""

    def split(self, values: Mapping[str, object]) -> Split:
        """Find how the values lie; ``find_out`` where that is not known or not so any more.

        Only the shape of a tensor is not looked at: a copy into a 0-d row refuses any other.

        Raises:
            MetricError: a value is no number, or a name is not allowed.
        """
        layout = self._layouts.get(tuple(values))
        given = [*values.values()]
        # whole lists are compared, as a look at one value after the other takes twice as long
        if layout is None or [*map(type, given)] != layout.types:
            return self.find_out(values)
        tensors: list[tuple[Tensor, ...] | list[Tensor]] = []
        for group in layout.groups:
            some = group.pick(given)
            indices = group.device_indices
            if [*map(_dtype, some)] != group.dtypes or [*map(_device_index, some)] != indices:
                return self.find_out(values)
            if indices[0] < 0 and not all(map(_is_cpu, some)):
                return self.find_out(values)  # a meta tensor has no index either
            tensors.append(some)
        return layout, layout.pick_numbers(given) if layout.number_count else (), tensors

    def find_out(self, values: Mapping[str, object]) -> Split:
        """Check every value by itself, and find how they lie.

        Raises:
            MetricError: a value is no number, or a name is not allowed.
        """
        names, given = tuple(values), list(values.values())
        checked = [_checked(name, value) for name, value in zip(names, given, strict=True)]
        positions: dict[Source, list[int]] = {}
        number_positions: list[int] = []
        for position, value in enumerate(checked):
            if isinstance(value, Tensor):
                source = self._source(names[position], value)
                positions.setdefault(source, []).append(position)
            else:
                number_positions.append(position)
        if positions and len(names) > ROW_LIMIT:
            raise MetricError(
                f"log: {len(names)} values in one call; at most {ROW_LIMIT} fit, "
                f"so log them in several calls"
            )
        groups = tuple(
            Group(
                source,
                tuple(names[position] for position in some),
                len(some),
                _pick(some),
                [source.dtype] * len(some),
                [checked[some[0]].get_device()] * len(some),
            )
            for source, some in positions.items()
        )
        arrival = [*number_positions, *(p for some in positions.values() for p in some)]
        order = sorted(range(len(names)), key=arrival.__getitem__)
        in_order = None if order == list(range(len(names))) else _pick(order)
        types = [*map(type, checked)]
        pick_numbers = _pick(number_positions)
        layout = Layout(names, types, len(number_positions), pick_numbers, groups, in_order)
        if all(value is as_given for value, as_given in zip(checked, given, strict=True)):
            if len(self._layouts) >= _LAYOUT_LIMIT:
                self._layouts.clear()
            self._layouts[names] = layout
        tensors = [group.pick(checked) for group in groups]
        return layout, layout.pick_numbers(checked), tensors

    def _source(self, name: str, tensor: Tensor) -> Source:
        key = tensor.device, tensor.dtype
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = Source(
                *key, row_kind(name, tensor), key[1] not in _NO_FUSED_COPY
            )
        return source


def _checked(name: str, value: object) -> Any:
    """Return the value as a Python number or a 0-d tensor."""
    check_name(name)
    kind = type(value)
    if kind is float or kind is int:
        return value
    if not isinstance(value, Tensor):
        return host_number(name, value)
    return value if kind is Tensor and not value.dim() else scalar(name, value)


def _pick(positions: Sequence[int]) -> Pick:
    """Return a function that takes the values at these positions."""
    first, count = positions[0] if positions else 0, len(positions)
    if list(positions) == list(range(first, first + count)):
        return itemgetter(slice(first, first + count))  # itemgetter(3) would give no sequence
    return itemgetter(*positions)
