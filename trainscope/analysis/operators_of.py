"""Which operator enqueued which GPU op."""

from __future__ import annotations

import numpy as np

from trainscope.analysis.launched_by import calls_of_ops
from trainscope.analysis.nesting import Around
from trainscope.trace.window import Column, Spans, Window

__all__ = ["innermost_operators", "innermost_ranges", "outermost_operators"]


def innermost_operators(window: Window) -> Column:
    """Row in ``Window.ops`` of the innermost operator around each GPU op's call; -1 for none."""
    return _around(window, window.ops)[0]


def outermost_operators(window: Window) -> Column:
    """Row in ``Window.ops`` of the outermost operator around each GPU op's call; -1 for none."""
    return _around(window, window.ops)[1]


def innermost_ranges(window: Window) -> Column:
    """Row in ``Window.ranges`` of the innermost range around each GPU op's call; -1 for none."""
    return _around(window, window.ranges)[0]


def _around(window: Window, spans: Spans) -> tuple[Column, Column]:
    calls = window.calls
    of_op = calls_of_ops(window)
    if not len(calls) or not len(of_op):
        none = np.full(len(of_op), -1, dtype=np.int64)
        return none, none
    used, back = np.unique(np.maximum(of_op, 0), return_inverse=True)
    where = calls.thread[used], calls.start_ns[used], calls.end_ns[used]
    around = Around(spans)
    return tuple(
        np.where(of_op >= 0, rows[back], -1)
        for rows in (around.innermost(*where), around.outermost(*where))
    )  # pyright: ignore[reportReturnType]
