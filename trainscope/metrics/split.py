"""Sort the values of one ``log`` call: plain numbers, and tensors by where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from trainscope.errors import MetricError
from trainscope.metrics.values import check_name, host_number, row_kind, scalar

__all__ = ["ROW_LIMIT", "Group", "Source", "Splitter"]

ROW_LIMIT = 4096
"""Rows of one kind on one device between two flushes: 32 KiB at most."""

Source = tuple[torch.device, torch.dtype]


class Group(NamedTuple):
    """Tensors that one fused copy takes."""

    source: Source
    names: list[str]
    tensors: list[Tensor]
    """0-d, in the order of the names."""


Split = tuple[dict[str, float | int], list[Group]]


class Splitter:
    """Sorts the values of each call, quickly where it looks like the one before.

    A loop logs the same names with tensors of one dtype on one device, step after step: then
    nothing has to be looked up, only checked.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._names: tuple[str, ...] = ()
        """Names of the last call, if its tensors were all of one CUDA source."""
        self._source: Source | None = None
        self._dtype: torch.dtype | None = None
        self._index = -1

    def split(self, values: Mapping[str, object]) -> Split:
        """Split into plain numbers, and tensors by device and dtype.

        Raises:
            MetricError: a value is no number, or a name is not allowed.
        """
        if self._source is not None and tuple(values) == self._names:
            dtype, index = self._dtype, self._index
            numbers: dict[str, float | int] = {}
            names: list[str] = []
            tensors: list[Tensor] = []
            for name, value in values.items():
                kind = type(value)
                if (
                    kind is Tensor
                    and value.dtype is dtype  # type: ignore[attr-defined]
                    and value.get_device() == index  # type: ignore[attr-defined]
                    and not value.dim()  # type: ignore[attr-defined]
                ):
                    names.append(name)
                    tensors.append(value)  # type: ignore[arg-type]
                elif kind is float or kind is int:
                    numbers[name] = value  # type: ignore[assignment]
                else:
                    break
            else:
                return numbers, [Group(self._source, names, tensors)] if names else []
        return self._split(values)

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
                group = groups[source] = Group(source, [], [])
            group.names.append(name)
            group.tensors.append(value)
        if groups and len(values) > ROW_LIMIT:
            raise MetricError(
                f"log: {len(values)} values in one call; at most {ROW_LIMIT} fit, "
                f"so log them in several calls"
            )
        self._remember(tuple(values), groups)
        return numbers, list(groups.values())

    def _remember(self, names: tuple[str, ...], groups: dict[Source, Group]) -> None:
        self._source = None
        if len(groups) == 1:
            ((source, group),) = groups.items()
            if source[0].type == "cuda":  # an index does not tell a CPU tensor from a meta one
                self._source, self._names = source, names
                self._dtype, self._index = source[1], group.tensors[0].get_device()
