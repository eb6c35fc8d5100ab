"""Which operator, or which range, enqueued which GPU op."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainscope.analysis.launched_by import calls_of_ops, values_at
from trainscope.analysis.nesting import Around
from trainscope.analysis.thread_roles import AUTOGRAD, loop_thread, thread_roles
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Column, Window

__all__ = ["innermost_operators", "innermost_ranges", "outermost_operators"]


def innermost_operators(window: Window) -> Column:
    """Row in ``Window.ops`` of the innermost operator around each GPU op's call; -1 for none."""
    return _around_calls(window, Around(window.ops).innermost)


def outermost_operators(window: Window) -> Column:
    """Row in ``Window.ops`` of the outermost operator around each GPU op's call; -1 for none."""
    return _around_calls(window, Around(window.ops).outermost)


def innermost_ranges(window: Window, steps: WindowSteps) -> Column:
    """Row in ``Window.ranges`` of the innermost range around each GPU op's call; -1 for none.

    A step's own range counts as none: its number would part what is the same in each step. What
    autograd's thread calls is in the range of the loop's thread, which waits in it.
    """
    call, back = _calls(window)
    calls = window.calls
    engine = np.array([role == AUTOGRAD for role in thread_roles(window, steps)] or [False])
    thread = calls.thread[call]
    thread = np.where((thread >= 0) & engine[thread], loop_thread(window, steps), thread)
    found = Around(window.ranges).innermost(thread, calls.start_ns[call], calls.end_ns[call])
    if steps.rows is not None:
        found = np.where(np.isin(found, steps.rows), -1, found)
    return values_at(found, back)


def _around_calls(window: Window, find: Callable[[Column, Column, Column], Column]) -> Column:
    call, back = _calls(window)
    calls = window.calls
    return values_at(find(calls.thread[call], calls.start_ns[call], calls.end_ns[call]), back)


def _calls(window: Window) -> tuple[Column, Column]:
    """The calls that enqueued any op, and for each op its place among them; -1 for none."""
    of_op = calls_of_ops(window)
    known = of_op >= 0
    call, place = np.unique(of_op[known], return_inverse=True)
    back = np.full(len(of_op), -1, dtype=np.int64)
    back[known] = place
    return call, back
