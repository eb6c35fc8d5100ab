"""Whether a captured window holds what its numbers rest on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainscope.analysis.launched_by import ops_of_calls
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.orphans import lost_launches
from trainscope.trace.plural import have
from trainscope.trace.window import Window

__all__ = ["incomplete", "too_incomplete"]

_LOST = 0.01
"""Share of launches without GPU work, or the reverse, from which on it is said."""
_MANY_LOST = 0.1
"""The same from which on no forecast can rest on them."""
_MOSTLY = 0.5
"""Share of a function's calls with GPU work from which on all of them should have some."""
_CAPTURE = "cudaStreamBeginCapture"


def incomplete(window: Window, steps: WindowSteps) -> tuple[str, ...]:
    """What makes the numbers of the steps doubtful, in words; empty for a whole window."""
    found = []
    if len(steps) == 1:
        found.append("only one step was captured, and it starts with nothing in the queue")
    found += _without_gpu_work(window, steps, _LOST)
    lost = lost_launches(window)
    if lost > _LOST * len(window.gpu):
        found.append(f"{lost:,} of {len(window.gpu):,} GPU ops have no launch")
    return tuple(found)


def too_incomplete(window: Window, steps: WindowSteps) -> str | None:
    """Why nothing can be foretold of the steps, in words; None where enough of them is there."""
    return next(_without_gpu_work(window, steps, _MANY_LOST), None)


def _without_gpu_work(window: Window, steps: WindowSteps, share: float) -> Iterator[str]:
    """Steps, and launches where they are more than a share of all, of which the trace has none."""
    idle = len(steps) - len(np.unique(_places(steps.of_ops(window))))
    if len(window.gpu) and 0 < idle < len(steps):
        yield f"{idle:,} of {len(steps):,} steps {have(idle)} no GPU work"
    lost, launches = _lost_launches(window, steps)
    if lost > share * launches:
        yield f"{lost:,} of {launches:,} launches in the steps have no GPU work"


def _places(step: np.ndarray) -> np.ndarray:
    return step[step >= 0]


def _lost_launches(window: Window, steps: WindowSteps) -> tuple[int, int]:
    """How many calls in the steps should have GPU work and have none, and how many there are."""
    if any(name.startswith(_CAPTURE) for name in window.names):
        return 0, 0  # launches into a graph that is being captured run nothing
    calls = window.calls
    inside = (steps.of_calls(window) >= 0) & (calls.name_id >= 0)
    name, has_op = calls.name_id[inside], ops_of_calls(window)[inside] >= 0
    if not len(name):
        return 0, 0
    many = np.bincount(name)
    working = np.bincount(name, weights=has_op)
    launching = working > _MOSTLY * many
    return int((many - working)[launching].sum()), int(many[launching].sum())
