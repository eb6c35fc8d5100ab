"""Which call enqueued which GPU op: the join by correlation."""

from __future__ import annotations

import numpy as np

from trainscope.trace.window import Column, Window

__all__ = ["calls_of_ops", "ops_of_calls", "rows_of", "values_at"]


def rows_of(wanted: Column, keys: Column) -> Column:
    """For each wanted value the first row of ``keys`` that holds it; -1 for none and for -1."""
    none = np.full(len(wanted), -1, dtype=np.int64)
    if not len(keys) or not len(wanted):
        return none
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    place = np.minimum(np.searchsorted(ordered, wanted), len(keys) - 1)
    return np.where((ordered[place] == wanted) & (wanted >= 0), order[place], none)


def calls_of_ops(window: Window) -> Column:
    """The row of the call that enqueued each GPU op; -1 where none is recorded."""
    return rows_of(window.gpu.correlation, window.calls.correlation)


def ops_of_calls(window: Window) -> Column:
    """The row of the first GPU op that each call enqueued; -1 for none."""
    return rows_of(window.calls.correlation, window.gpu.correlation)


def values_at(values: Column, rows: Column) -> Column:
    """The value at each row; -1 where the row is -1."""
    if not len(values):
        return np.full(len(rows), -1, dtype=np.int64)
    return np.where(rows >= 0, values[rows], -1)
