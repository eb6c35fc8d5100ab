"""The operators that came before a wait: they tell a line of a loop from another line."""

from __future__ import annotations

import numpy as np

from trainscope.analysis.names import name_of
from trainscope.analysis.nesting import Around, depths
from trainscope.analysis.waits import Waits
from trainscope.trace.window import Column, Window

__all__ = ["operators_before"]

_ENGINE = "autograd::engine::evaluate_function: "


def operators_before(
    window: Window, in_ops: Around, waits: Waits, rows: Column, since_ns: Column
) -> tuple[list[str | None], list[str | None]]:
    """The last outermost operator before each wait on its thread, and the one before that.

    None for one that began before ``since_ns``. The one before is also None where it waits itself:
    what came before another wait tells nothing of this one.
    """
    ops, thread, start_ns = window.ops, waits.thread[rows], waits.start_ns[rows]
    found = np.full((2, len(rows)), -1, dtype=np.int64)
    outer = np.flatnonzero(depths(ops) == 0)
    for which in np.unique(thread):
        mine = outer[ops.thread[outer] == which]
        asked = np.flatnonzero(thread == which)
        if not len(mine):
            continue
        place = np.searchsorted(ops.end_ns[mine], start_ns[asked], side="right") - 1
        for back in (0, 1):
            row = mine[np.maximum(place - back, 0)]
            inside = (place >= back) & (ops.start_ns[row] >= since_ns[asked])
            found[back, asked] = np.where(inside, row, -1)
    waiting = in_ops.outermost(thread, start_ns, waits.end_ns[rows])
    found[1, np.isin(found[1], waiting)] = -1
    last, earlier = ([_name(window, row) for row in each] for each in found.tolist())
    return last, earlier


def _name(window: Window, op: int) -> str | None:
    return name_of(window, window.ops.name_id[op]).removeprefix(_ENGINE) if op >= 0 else None
