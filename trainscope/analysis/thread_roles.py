"""What the CPU threads of a window are for: the loop's, autograd's, and helpers."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.intervals import union
from trainscope.analysis.launched_by import ops_of_calls
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Window

__all__ = ["AUTOGRAD", "MAIN", "loop_thread", "thread_roles", "works_for_loop"]

MAIN = "main"
AUTOGRAD = "autograd"
_BACKWARD = re.compile(r"backward", re.IGNORECASE)
_MOSTLY = 0.9
"""Share of a thread's launches that fall into the loop's backward ranges."""


def loop_thread(window: Window, steps: WindowSteps) -> int:
    """The thread that runs the training loop; -1 where no thread enqueued anything."""
    if steps.thread >= 0:
        return steps.thread
    launches = window.calls.thread[ops_of_calls(window) >= 0]
    launches = launches[launches >= 0]
    engines = _engines(window, -1)
    others = launches[~engines[launches]] if len(launches) else launches
    launches = others if len(others) else launches
    return int(np.argmax(np.bincount(launches))) if len(launches) else -1


def thread_roles(window: Window, steps: WindowSteps) -> tuple[str, ...]:
    """For each thread ``main`` (the loop's), ``autograd``, or a helper's own name."""
    loop = loop_thread(window, steps)
    engines = _engines(window, loop)
    return tuple(
        MAIN
        if place == loop
        else AUTOGRAD
        if engines[place]
        else thread.name or f"thread {thread.tid}"
        for place, thread in enumerate(window.threads)
    )


def works_for_loop(roles: tuple[str, ...]) -> NDArray[np.bool_]:
    """For each thread whether the training loop waits for what it does."""
    return np.array([role in (MAIN, AUTOGRAD) for role in roles], dtype=bool)


def _engines(window: Window, loop: int) -> NDArray[np.bool_]:
    """For each thread whether it is autograd's: by its own operators, or by its name.

    Where no operators are recorded it is one that launches while the loop is in its backward range.
    """
    engine = np.array([thread.name.startswith("pt_autograd") for thread in window.threads])
    engine = engine.astype(bool)
    marks = [i for i, name in enumerate(window.names) if name.startswith("autograd::engine::")]
    mine = window.ops.thread[np.isin(window.ops.name_id, marks)]
    engine[np.unique(mine[mine >= 0])] = True
    if len(window.ops) or loop < 0:
        return engine
    ranges, calls = window.ranges, window.calls
    backward = [i for i, name in enumerate(window.names) if _BACKWARD.search(name[:200])]
    chosen = np.isin(ranges.name_id, backward) & (ranges.thread == loop)
    inside = union(ranges.start_ns[chosen], ranges.end_ns[chosen])
    launches = np.flatnonzero((ops_of_calls(window) >= 0) & (calls.thread >= 0))
    thread = calls.thread[launches]
    many = np.bincount(thread, minlength=len(engine))
    within = inside.covers(calls.start_ns[launches])
    hits = np.bincount(thread, weights=within, minlength=len(engine))
    engine |= (hits > _MOSTLY * many) & (np.arange(len(engine)) != loop)
    return engine
