"""Loops that wait, for tests of waits and of their sites."""

from __future__ import annotations

from made_windows import Made

from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import WindowSync, find_syncs
from trainscope.trace.window import CopyKind, Memory, Window

__all__ = ["found", "item", "looped"]


def found(window: Window) -> tuple[WindowSync, ...]:
    return find_syncs(window, find_steps(window))


def item(made: Made, start: int, end: int, *, thread: int = 0, inside: str = "aten::item") -> None:
    """One ``.item()``: the operator, its copy, and the wait."""
    made.op(inside, start, end, thread).op("aten::_local_scalar_dense", start + 1, end, thread)
    copy = made.call("cudaMemcpyAsync", start + 2, start + 8, thread)
    made.copy(end - 12, end - 10, copy, CopyKind.D2H, Memory.PINNED)
    made.wait(start + 9, end - 1, thread=thread)


def looped(turns: int, phases: tuple[str, ...] = ("forward",), *, repeats: int = 1) -> Made:
    """Steps with one ``.item()`` after an ``aten::mean``, in each phase and turn of a loop."""
    made = Made()
    at = 0
    for number in range(turns):
        begin = at
        for phase in phases:
            first = at
            for _ in range(repeats):
                made.op("aten::mean", at + 1, at + 10).launch(at + 2, at + 8, at + 90)
                item(made, at + 20, at + 112)
                at += 200
            made.range(phase, first, at - 1)
        made.range(f"step {number}", begin, at)
    return made
