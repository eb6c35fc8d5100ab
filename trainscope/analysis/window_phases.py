"""Phases of a captured window: the outermost ranges inside a step, on the CPU and on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainscope.analysis.intervals import union
from trainscope.analysis.launched_by import calls_of_ops
from trainscope.analysis.thread_roles import thread_roles, works_for_loop
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Column, Window

__all__ = ["WindowPhase", "window_phases"]


@dataclass(frozen=True, eq=False)
class WindowPhase:
    """The ranges of one name that stand in a step with none around them but the step's."""

    name: str
    cpu_ns: Column
    """Their time in each step that has them."""
    gpu_ns: Column
    """In the same steps the time in which a GPU ran what was enqueued during them, on the loop's
    thread or autograd's; over several GPUs the sum."""
    share: float | None
    """Of the steps' time on the CPU; None for no time."""


def window_phases(window: Window, steps: WindowSteps) -> tuple[WindowPhase, ...]:
    """The phases in the order in which they first come; empty without steps."""
    if not len(steps):
        return ()
    rows, step = _outermost(window, steps)
    ranges = window.ranges
    op_row, op_place = _ops_of_ranges(window, steps, rows)
    span_ns = int((steps.until_ns - steps.start_ns).sum())
    name_of = ranges.name_id[rows]
    names, first = np.unique(name_of, return_index=True)
    found = []
    for name in names[np.argsort(first)]:
        mine = np.flatnonzero(name_of == name)
        seen = np.unique(step[mine])
        cpu_ns = np.zeros(len(steps), dtype=np.int64)
        np.add.at(cpu_ns, step[mine], (ranges.end_ns - ranges.start_ns)[rows[mine]])
        ops = np.isin(op_place, mine)
        gpu_ns = _busy_ns(window, op_row[ops], step[op_place[ops]], len(steps))
        found.append(
            WindowPhase(
                name=window.names[int(name)],
                cpu_ns=cpu_ns[seen],
                gpu_ns=gpu_ns[seen],
                share=int(cpu_ns.sum()) / span_ns if span_ns > 0 else None,
            )
        )
    return tuple(found)


def _outermost(window: Window, steps: WindowSteps) -> tuple[Column, Column]:
    """Rows of the ranges that are phases, by start, and the step of each."""
    ranges = window.ranges
    named = (ranges.name_id >= 0) & (ranges.name_id < len(window.names))
    forward = ranges.end_ns >= ranges.start_ns
    rows = np.flatnonzero(named & forward & (ranges.thread == steps.thread))
    own = steps.rows if steps.rows is not None else np.zeros(0, dtype=np.int64)
    rows = rows[~np.isin(rows, own)]
    step = steps.at(ranges.start_ns[rows])
    if not len(rows):
        return rows, step
    # a range around the step itself is no part of it
    inside = (step >= 0) & (ranges.end_ns[rows] <= steps.until_ns[np.maximum(step, 0)])
    rows, step = rows[inside], step[inside]
    ends_ns = np.maximum.accumulate(ranges.end_ns[rows])
    before_ns = np.concatenate(([np.iinfo(np.int64).min], ends_ns[:-1])) if len(rows) else ends_ns
    outermost = ranges.start_ns[rows] >= before_ns
    return rows[outermost], step[outermost]


def _ops_of_ranges(window: Window, steps: WindowSteps, rows: Column) -> tuple[Column, Column]:
    """Rows of the GPU ops that were enqueued during a phase, and the place of that in ``rows``."""
    call = calls_of_ops(window)
    ops = np.flatnonzero(call >= 0)
    if not len(ops) or not len(rows):
        return ops[:0], ops[:0]
    serving = works_for_loop(thread_roles(window, steps))
    thread = window.calls.thread[call[ops]]
    ops = ops[(thread >= 0) & serving[np.maximum(thread, 0)]]
    called_ns = window.calls.start_ns[call[ops]]
    place = np.searchsorted(window.ranges.start_ns[rows], called_ns, side="right") - 1
    within = (place >= 0) & (called_ns < window.ranges.end_ns[rows[np.maximum(place, 0)]])
    return ops[within], place[within]


def _busy_ns(window: Window, ops: Column, step: Column, steps: int) -> Column:
    """For each step the time in which one of its ops ran, summed over the devices."""
    busy_ns = np.zeros(steps, dtype=np.int64)
    gpu = window.gpu
    for device in np.unique(gpu.device[ops]):
        here = gpu.device[ops] == device
        for number in np.unique(step[here]):
            mine = ops[here & (step == number)]
            found = union(gpu.start_ns[mine], gpu.end_ns[mine])
            busy_ns[number] += int((found.end_ns - found.start_ns).sum())
    return busy_ns
