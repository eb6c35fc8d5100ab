"""The rows that a softmax works on, as the fewest loops over memory that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["MOST_LEVELS", "Rows", "rows_of"]

MOST_LEVELS = 4
"""A kernel turns a row's number into an address through at most this many sizes and strides."""


class Rows(NamedTuple):
    """A tensor without its softmax dim, rows numbered as in a contiguous result.

    Row ``r`` of the result starts at ``(r // inner) * columns * inner + r % inner`` and its
    columns are ``inner`` apart. In the input, the levels give the row's start, outermost first.
    """

    rows: int
    columns: int
    inner: int
    column_stride: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def rows_of(shape: Sequence[int], strides: Sequence[int], dim: int) -> Rows:
    """Merge all dims but ``dim`` into as few (size, stride) levels as their strides allow.

    shape, strides: in elements, of any length from 0; dim: from 0, ignored where shape is empty.
    """
    if not shape:
        return Rows(1, 1, 1, 1, (1,), (0,))
    rows = inner = 1
    levels: list[tuple[int, int]] = []
    for place, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if place == dim:
            continue
        rows *= size
        if place > dim:
            inner *= size
        if size == 1:
            continue
        if levels and levels[-1][1] == size * stride:
            levels[-1] = (levels[-1][0] * size, stride)
        else:
            levels.append((size, stride))
    if not levels:
        levels.append((1, 0))
    # one column has no distance to a next one; 1 lets every such tensor share a kernel
    column_stride = strides[dim] if shape[dim] > 1 else 1
    sizes, level_strides = zip(*levels, strict=True)
    return Rows(rows, shape[dim], inner, column_stride, sizes, level_strides)
