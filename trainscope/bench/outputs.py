"""The values in an output and where they stand in it, whatever it is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

__all__ = ["copied", "in_one_line", "paired", "values"]


def copied(output: Any) -> Any:
    """The output with memory of its own: what made it may write there again."""
    return pytree.tree_map(_copied, output)


def values(output: Any) -> dict[str, Any]:
    """Each value by its place: ``[0]``, ``['loss']``, empty where the output is the value.

    Arrays of NumPy are tensors here, and a tensor of a sparse layout is a dense one.
    """
    found, _ = pytree.tree_flatten_with_path(output)
    return {pytree.keystr(path): _as_tensor(value) for path, value in found}


def paired(ours: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Our value for each wanted place; None where the two are made of other parts.

    Values with names are found by them; a tuple, a list and a single value are taken in order.
    """
    if set(ours) == set(wanted):
        return ours
    named = any("['" in place for places in (ours, wanted) for place in places)
    if len(ours) != len(wanted) or (len(wanted) > 1 and named):
        return None
    return dict(zip(wanted, ours.values(), strict=True))


def in_one_line(value: Any) -> str:
    """A value in a few words: its type, and for what is short itself."""
    if value is None or isinstance(value, bool | int | float | str):
        return f"{value!r:.80}"
    return f"of type {type(value).__name__}"


def _copied(value: Any) -> Any:
    if torch.is_tensor(value):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _as_tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        try:
            return torch.from_numpy(value)
        except (TypeError, ValueError):  # of objects, or of a negative stride
            return value
    if torch.is_tensor(value) and value.layout != torch.strided and not value.is_nested:
        return value.to_dense()
    return value
