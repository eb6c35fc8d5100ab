"""Sort the values of one ``log`` call: plain numbers, and tensors by where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainscope.errors import MetricError
from trainscope.metrics.values import check_name, host_number, row_kind, scalar

__all__ = ["ROW_LIMIT", "Group", "Source", "Splitter"]

ROW_LIMIT = 4096
"""Rows of one kind on one device between two flushes: 32 KiB at most."""

Source = tuple[torch.device, torch.dtype]


Group = tuple[Source, list[str], list[Tensor]]
"""Tensors that one fused copy takes: all of one source, 0-d, in the order of the names."""

Split = tuple[tuple[str, ...], dict[str, float | int], list[Group]]
"""All names in the order given, the plain numbers, and the tensors."""


class _Layout(NamedTuple):
    """How the values of a call lay: numbers, and 0-d tensors of at most one source on a GPU."""

    names: tuple[str, ...]
    number_names: tuple[str, ...]
    tensor_names: list[str]
    source: Source | None
    dtype: torch.dtype | None
    device_index: int


class Splitter:
    """Sorts the values of each call, quickly where it looks like the one before.

    A loop logs the same names with tensors of one dtype on one device, step after step: then
    nothing has to be looked up, only checked.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._layout: _Layout | None = None
        """Of the last call, where it has one."""

    def split(self, values: Mapping[str, object]) -> Split:
        """Split into plain numbers, and tensors by device and dtype.

        Raises:
            MetricError: a value is no number, or a name is not allowed.
        """
        layout = self._layout
        if layout is None or tuple(values) != layout[0]:
            return self._split(values)
        names, number_names, tensor_names, source, dtype, index = layout
        tensors: list[Any] = [
            value
            for value in values.values()
            if type(value) is Tensor
            and value.dtype is dtype
            and value.get_device() == index
            and not value.dim()
        ]
        if len(tensors) == len(names) and source is not None:
            return names, {}, [(source, tensor_names, tensors)]
        numbers: dict[str, float | int] = {
            name: value
            for name, value in values.items()
            if (kind := type(value)) is float or kind is int
        }  # type: ignore[assignment]
        if len(tensors) != len(tensor_names) or tuple(numbers) != number_names:
            return self._split(values)
        return names, numbers, [] if source is None else [(source, tensor_names, tensors)]

    def _split(self, values: Mapping[str, object]) -> Split:
        known = self._known
        numbers: dict[str, float | int] = {}
        groups: dict[Source, Group] = {}
        for name, value in values.items():
            if name not in known:
                check_name(name)
                known.add(name)
            kind = type(value)
            if kind is float or kind is int:
                numbers[name] = value  # type: ignore[assignment]
                continue
            if not isinstance(value, Tensor):
                numbers[name] = host_number(name, value)
                continue
            if kind is not Tensor or value.dim():
                value = scalar(name, value)
            source = value.device, value.dtype
            group = groups.get(source)
            if group is None:
                row_kind(name, value)
                group = groups[source] = source, [], []
            group[1].append(name)
            group[2].append(value)
        if groups and len(values) > ROW_LIMIT:
            raise MetricError(
                f"log: {len(values)} values in one call; at most {ROW_LIMIT} fit, "
                f"so log them in several calls"
            )
        self._layout = _layout(tuple(values), tuple(numbers), list(groups.values()))
        return tuple(values), numbers, list(groups.values())


def _layout(
    names: tuple[str, ...], number_names: tuple[str, ...], groups: list[Group]
) -> _Layout | None:
    if not groups:
        return _Layout(names, number_names, [], None, None, -1)
    if len(groups) > 1:
        return None
    source, tensor_names, tensors = groups[0]
    # the index that get_device gives does not tell a CPU tensor from a meta one
    if source[0].type != "cuda":
        return None
    index = tensors[0].get_device()
    return _Layout(names, number_names, tensor_names, source, source[1], index)
