"""Sort the values of one ``log`` call: plain numbers, and tensors by where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from trainscope.errors import MetricError
from trainscope.metrics.gather import Gather
from trainscope.metrics.likeness import Likeness, likeness_of
from trainscope.metrics.values import check_name, host_number, row_kind, scalar

__all__ = ["ROW_LIMIT", "Group", "Layout", "Source", "Split", "Splitter", "Tensors"]

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
    fused: bool
    """Several tensors that one kernel copies."""
    pick: Pick | None
    """None: these are all the values."""
    likenesses: tuple[Likeness, ...]
    """Of each tensor; none where torch cannot tell."""


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """Which values of a call are numbers, and which are tensors of what source."""

    names: tuple[str, ...]
    """In the order given."""
    number_count: int
    pick_numbers: Pick
    groups: tuple[Group, ...]
    in_order: Pick | None
    """From the numbers and then the values of each group to the order of the names; None: the same.
    """
    gather: Gather | None
    """One launch for all groups, where there is one."""


Tensors = tuple[Tensor, ...] | list[Tensor]
Split = tuple[Layout, Sequence[float | int], list[Tensors]]
"""How the values of a call lie; the Python numbers; the 0-d tensors of each group."""


class Splitter:
    """Sorts the values of each call, quickly where it looks like one before.

    A loop logs the same names with tensors of the same dtypes and devices, step after step: then
    nothing has to be found out, only checked.
    """

    def __init__(self) -> None:
        self._sources: dict[tuple[torch.device, torch.dtype], Source] = {}
        self._gathers: dict[tuple[tuple[torch.dtype, ...], int], Gather] = {}
        self._layouts: dict[tuple[str, ...], Layout] = {}
        """The last one of each call's names, where its values could be taken as they are."""

    def split(self, values: Mapping[str, object]) -> Split:
        """Find how the values lie; ``find_out`` where that is not known or not so any more.

        Raises:
            MetricError: a value is no number, or a name is not allowed.
        """
        layout = self._layouts.get(tuple(values))
        if layout is None:
            return self.find_out(values)
        given: list[Any] = [*values.values()]
        tensors: list[Tensors] = []
        for group in layout.groups:
            some = group.pick(given) if group.pick else given
            for is_like, tensor in zip(group.likenesses, some):  # noqa: B905 (saying so costs)
                if not is_like(tensor):
                    return self.find_out(values)
            tensors.append(some)
        if not layout.number_count:
            return layout, (), tensors
        numbers = layout.pick_numbers(given)
        for number in numbers:
            if type(number) is not float and type(number) is not int:
                return self.find_out(values)
        return layout, numbers, tensors

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
        as_they_are = all(value is same for value, same in zip(checked, given, strict=True))
        groups = tuple(
            Group(
                source,
                tuple(names[position] for position in some),
                len(some),
                source.fuses and len(some) > 1,
                None if len(some) == len(names) else _pick(some),
                _likenesses([checked[position] for position in some]) if as_they_are else (),
            )
            for source, some in positions.items()
        )
        arrival = [*number_positions, *(p for some in positions.values() for p in some)]
        order = sorted(range(len(names)), key=arrival.__getitem__)
        in_order = None if order == list(range(len(names))) else _pick(order)
        tensors = [group.pick(checked) if group.pick else checked for group in groups]
        layout = Layout(
            names,
            len(number_positions),
            _pick(number_positions),
            groups,
            in_order,
            self._gather([each for some in tensors for each in some]) if as_they_are else None,
        )
        if as_they_are and all(group.likenesses for group in groups):
            if len(self._layouts) >= _LAYOUT_LIMIT:
                self._layouts.clear()
            self._layouts[names] = layout
        return layout, layout.pick_numbers(checked), tensors

    def _gather(self, tensors: Sequence[Tensor]) -> Gather | None:
        dtypes = tuple(tensor.dtype for tensor in tensors)
        devices = {tensor.get_device() for tensor in tensors}
        # torch sees to a lazy minus, and to a zero that has no memory, of its forward mode
        if not Gather.takes(dtypes, devices) or any(
            tensor.is_neg() or tensor.data_ptr() == 0 for tensor in tensors
        ):
            return None
        key = dtypes, devices.pop()
        gather = self._gathers.get(key)
        if gather is None:
            if len(self._gathers) >= _LAYOUT_LIMIT:
                self._gathers.clear()
            gather = self._gathers[key] = Gather(*key)
        return gather

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


def _likenesses(tensors: Sequence[Tensor]) -> tuple[Likeness, ...]:
    """That of each tensor; none where torch cannot tell of one."""
    found = [likeness_of(tensor) for tensor in tensors]
    return tuple(each for each in found if each is not None) if None not in found else ()


def _pick(positions: Sequence[int]) -> Pick:
    """Return a function that takes the values at these positions."""
    first, count = positions[0] if positions else 0, len(positions)
    if list(positions) == list(range(first, first + count)):
        return itemgetter(slice(first, first + count))  # itemgetter(3) would give no sequence
    return itemgetter(*positions)
