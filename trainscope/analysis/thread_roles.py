"""What the CPU threads of a window are for: the loop's, autograd's, and helpers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.launched_by import ops_of_calls
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Window

__all__ = ["AUTOGRAD", "MAIN", "loop_thread", "thread_roles", "works_for_loop"]

MAIN = "main"
AUTOGRAD = "autograd"


def loop_thread(window: Window, steps: WindowSteps) -> int:
    """The thread that runs the training loop; -1 where no thread enqueued anything."""
    if steps.thread >= 0:
        return steps.thread
    launches = window.calls.thread[ops_of_calls(window) >= 0]
    launches = launches[launches >= 0]
    engines = _engines(window)
    others = launches[~engines[launches]] if len(launches) else launches
    launches = others if len(others) else launches
    return int(np.argmax(np.bincount(launches))) if len(launches) else -1


def thread_roles(window: Window, steps: WindowSteps) -> tuple[str, ...]:
    """For each thread ``main`` (the loop's), ``autograd``, or a helper's own name."""
    loop = loop_thread(window, steps)
    engines = _engines(window)
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


def _engines(window: Window) -> NDArray[np.bool_]:
    """For each thread whether it is autograd's: by its own operators, or by its name."""
    engine = np.array([thread.name.startswith("pt_autograd") for thread in window.threads])
    engine = engine.astype(bool)
    marks = [i for i, name in enumerate(window.names) if name.startswith("autograd::engine::")]
    mine = window.ops.thread[np.isin(window.ops.name_id, marks)]
    engine[np.unique(mine[mine >= 0])] = True
    return engine
