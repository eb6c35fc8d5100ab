"""Sort the values of one ``log`` call: plain numbers, and tensors by where they lie."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from trainscope.errors import MetricError
from trainscope.metrics.values import check_name, host_number, row_kind, scalar

__all__ = ["ROW_LIMIT", "Groups", "split"]

ROW_LIMIT = 4096
"""Rows of one kind on one device between two flushes: 32 KiB at most."""

Groups = dict[tuple[torch.device, torch.dtype], tuple[list[str], list[torch.Tensor]]]
"""By device and dtype: the names, and the 0-d tensors in the same order."""


def split(values: Mapping[str, object], known: set[str]) -> tuple[dict[str, float | int], Groups]:
    """Split into plain numbers, and tensors by device and dtype.

    ``known`` holds the names that have been checked; new ones are added.

    Raises:
        MetricError: a value is no number, or a name is not allowed.
    """
    numbers: dict[str, float | int] = {}
    groups: Groups = {}
    dtype = device = group = None
    for name, value in values.items():
        if name not in known:
            check_name(name)
            known.add(name)
        kind = type(value)
        if kind is float or kind is int:
            numbers[name] = value  # type: ignore[assignment]
            continue
        if not isinstance(value, torch.Tensor):
            numbers[name] = host_number(name, value)
            continue
        if kind is not torch.Tensor or value.dim():
            value = scalar(name, value)
        # most often the same as the last one: two comparisons instead of a look-up
        if group is None or value.dtype is not dtype or value.device != device:
            dtype, device = value.dtype, value.device
            group = groups.get((device, dtype))
            if group is None:
                row_kind(name, value)
                group = groups[device, dtype] = ([], [])
        group[0].append(name)
        group[1].append(value)
    if groups and len(values) > ROW_LIMIT:
        raise MetricError(
            f"log: {len(values)} values in one call; at most {ROW_LIMIT} fit, "
            f"so log them in several calls"
        )
    return numbers, groups
