"""Sort the values of one ``log`` call: plain numbers, and tensors by where they lie."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trainscope.errors import MetricError
from trainscope.metrics.values import check_name, host_number, row_kind, scalar

__all__ = ["ROW_LIMIT", "Groups", "split"]

ROW_LIMIT = 4096
"""Rows of one kind on one device between two flushes: 32 KiB at most."""

Groups = dict[tuple[torch.device, torch.dtype], tuple[list[str], list[Tensor]]]
"""By device and dtype: the names, and the 0-d tensors in the same order."""


def split(values: Mapping[str, object], known: set[str]) -> tuple[dict[str, float | int], Groups]:
    """Split into plain numbers, and tensors by device and dtype.

    ``known`` holds the names that have been checked; new ones are added.

    Raises:
        MetricError: a value is no number, or a name is not allowed.
    """
    numbers: dict[str, float | int] = {}
    groups: Groups = {}
    names: list[str] = []
    tensors: list[Tensor] = []
    dtype = device = None
    index = -2  # no device
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
        # most often the same as the last one: comparisons are cheaper than a look-up, and an
        # index than a device (-1 may be cpu or meta)
        if (
            value.dtype is not dtype
            or value.get_device() != index
            or (index < 0 and value.device != device)
        ):
            dtype, device, index = value.dtype, value.device, value.get_device()
            group = groups.get((device, dtype))
            if group is None:
                row_kind(name, value)
                group = groups[device, dtype] = ([], [])
            names, tensors = group
        names.append(name)
        tensors.append(value)
    if groups and len(values) > ROW_LIMIT:
        raise MetricError(
            f"log: {len(values)} values in one call; at most {ROW_LIMIT} fit, "
            f"so log them in several calls"
        )
    return numbers, groups
