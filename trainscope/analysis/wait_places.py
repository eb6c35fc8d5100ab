"""Sites of waits from what a window recorded around them: Python functions, ranges, operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainscope.analysis.names import name_of
from trainscope.analysis.nesting import Around, depths
from trainscope.analysis.operators_before import operators_before
from trainscope.analysis.thread_roles import AUTOGRAD, loop_thread, thread_roles
from trainscope.analysis.user_frames import Frame, is_users, read_frame
from trainscope.analysis.wait_calls import call_name
from trainscope.analysis.wait_kinds import called_function, kind_of_wait
from trainscope.analysis.waits import Waits
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Column, Window

__all__ = ["places_of_waits"]

_SHOWN_RANGES = 6
_NEAR_FUNCTIONS = 6
"""Library functions between the user's and the wait that may tell its kind."""
_FOREVER_NS = np.iinfo(np.int64).max
_AT_ONCE = 2048
"""Waits looked at together: a table of theirs has a column for each depth of the Python stack."""


@dataclass(frozen=True)
class _Surroundings:
    """What is around a wait and tells it from others; all names outermost first."""

    frame: Frame | None
    """The innermost function of the user's."""
    running: bool
    """That function was running when recording began."""
    functions: tuple[str, ...]
    """Those between it and the wait."""
    ranges: tuple[str, ...]
    """Those inside the step."""
    operators: tuple[str, ...]
    before: str
    earlier: str | None
    """The operator before that one; None where another wait or the step's begin comes first."""
    call: str
    wait_call: int
    copy_kind: int
    host_memory: int
    role: str
    in_step: bool


def places_of_waits(
    window: Window, steps: WindowSteps, waits: Waits, rows: Column, step: Column
) -> list[WindowSite]:
    """The site of each wait in ``rows``; waits that nothing recorded tells apart share one.

    Waits with the same function, ranges and operators around them are told apart by the two
    operators before, where no operators are recorded by the range before: a line in a loop has the
    same ones each time.
    """
    known: dict[_Surroundings, WindowSite] = {}
    last: dict[_Surroundings, tuple[int, str | None]] = {}
    found = []
    surroundings = _surroundings(window, steps, waits, rows, step)
    for around, of_step in zip(surroundings, step[rows].tolist(), strict=True):
        alike = replace(around, earlier=None)
        if around.earlier is None and alike in last and last[alike][0] == of_step:
            around = replace(around, earlier=last[alike][1])  # a loop's next turn
        last[alike] = of_step, around.earlier
        site = known.get(around)
        if site is None:
            site = known[around] = _site(around)
        found.append(site)
    return _numbered(found)


def _surroundings(
    window: Window, steps: WindowSteps, waits: Waits, rows: Column, step: Column
) -> Iterator[_Surroundings]:
    roles = thread_roles(window, steps)
    # what runs in backward has the ranges and functions of the loop's thread, which waits in it
    engine = np.array([role == AUTOGRAD for role in roles] or [False], dtype=bool)
    loop = loop_thread(window, steps)
    in_ops, in_ranges = Around(window.ops), Around(window.ranges)
    in_frames = Around(window.frames)
    since_ns = np.where(step[rows] >= 0, _at(steps.start_ns, step[rows]), -_FOREVER_NS)
    before, earlier = operators_before(window, in_ops, waits, rows, since_ns)
    step_rows = set() if steps.rows is None else set(steps.rows.tolist())
    running = _running_at_start(window)
    ended = None if len(window.ops) else _Ended(window, step_rows)
    for first in range(0, len(rows), _AT_ONCE):
        some = rows[first : first + _AT_ONCE]
        thread, start_ns, end_ns = waits.thread[some], waits.start_ns[some], waits.end_ns[some]
        caller = np.where(engine[thread], loop, thread)
        op_rows = in_ops.path(thread, start_ns, end_ns)
        range_rows = in_ranges.path(caller, start_ns, end_ns)
        frame_rows = in_frames.path(caller, start_ns, end_ns)
        for i, row in enumerate(some):
            frame, frame_row, functions = _user_frame(window, frame_rows[i])
            op = int(waits.copy_op[row])
            after = before[first + i] or ""
            if ended is not None:
                after = ended.last(caller[i], start_ns[i], since_ns[first + i], range_rows[i])
            yield _Surroundings(
                frame=frame,
                running=frame_row in running,
                functions=functions,
                ranges=_ranges(window, range_rows[i], step_rows),
                operators=tuple(
                    name_of(window, window.ops.name_id[r]) for r in op_rows[i] if r >= 0
                ),
                before=after,
                earlier=earlier[first + i],
                call=call_name(name_of(window, window.calls.name_id[waits.call[row]])),
                wait_call=int(waits.wait_call[row]),
                copy_kind=int(window.gpu.copy_kind[op]) if op >= 0 else -1,
                host_memory=int(window.gpu.host_memory[op]) if op >= 0 else -1,
                role=roles[waits.thread[row]],
                in_step=bool(step[row] >= 0),
            )


def _user_frame(window: Window, rows: Column) -> tuple[Frame | None, int, tuple[str, ...]]:
    """The innermost function of the user's, its row, and the names of those inside it."""
    inside: list[str] = []
    for row in rows[::-1]:
        if row < 0:
            continue
        name = name_of(window, window.frames.name_id[row])
        frame = read_frame(name)
        if frame is not None and is_users(frame):
            return frame, int(row), tuple(inside[:_NEAR_FUNCTIONS][::-1])
        inside.append(called_function(name))
    return None, -1, tuple(inside[:_NEAR_FUNCTIONS][::-1])


def _ranges(window: Window, rows: Column, step_rows: set[int]) -> tuple[str, ...]:
    kept = [int(row) for row in rows if row >= 0]
    steps = [place for place, row in enumerate(kept) if row in step_rows]
    kept = kept[steps[-1] + 1 :] if steps else kept
    return tuple(name_of(window, window.ranges.name_id[row]) for row in kept[:_SHOWN_RANGES])


class _Ended:
    """Which range of a thread was the last to end, the steps themselves left out."""

    def __init__(self, window: Window, step_rows: set[int]) -> None:
        self._window = window
        ranges = window.ranges
        self._rows: dict[int, Column] = {}
        for thread in np.unique(ranges.thread):
            rows = np.flatnonzero(ranges.thread == thread)
            rows = rows[~np.isin(rows, list(step_rows))]
            self._rows[int(thread)] = rows[np.argsort(ranges.end_ns[rows], kind="stable")]

    def last(self, thread: int, start_ns: int, since_ns: int, around: Column) -> str:
        """The name of the last one before a moment that began within the innermost one around."""
        ranges = self._window.ranges
        rows = self._rows.get(int(thread))
        if rows is None or not len(rows):
            return ""
        inside = around[around >= 0]
        since_ns = max([since_ns, *ranges.start_ns[inside].tolist()])
        place = int(np.searchsorted(ranges.end_ns[rows], start_ns, side="right")) - 1
        if place < 0 or ranges.start_ns[rows[place]] < since_ns:
            return ""
        return name_of(self._window, ranges.name_id[rows[place]])


def _at(values: Column, places: Column) -> Column:
    return values[places] if len(values) else places


def _running_at_start(window: Window) -> set[int]:
    """Rows of the functions that were running when recording began: a thread's first, nested."""
    frames = window.frames
    running: set[int] = set()
    depth = depths(frames)
    for thread in np.unique(frames.thread):
        rows = np.flatnonzero(frames.thread == thread)
        apart = np.flatnonzero(depth[rows] != np.arange(len(rows)))
        running.update(rows[: apart[0] if len(apart) else len(rows)].tolist())
    return running


def _site(around: _Surroundings) -> WindowSite:
    shown = [name for name in around.operators if not name.startswith("autograd::engine::")]
    frame = around.frame
    return WindowSite(
        kind=kind_of_wait(
            around.wait_call,
            around.copy_kind,
            around.host_memory,
            around.operators,
            () if around.role == AUTOGRAD else around.functions,
        ),
        file=frame.file if frame else None,
        line=frame.line if frame else None,
        line_is="" if frame is None else "running" if around.running else "function",
        function=frame.function if frame else None,
        phase=around.ranges[0] if around.ranges else None,
        ranges=around.ranges,
        operator=shown[0] if shown else around.call,
        after=around.before,
        earlier=around.earlier or "",
        thread=around.role,
        ordinal=1,
        alike=1,
        in_steps=around.in_step,
    )


def _numbered(sites: Sequence[WindowSite]) -> list[WindowSite]:
    """The sites with their place among those that are alike but for the operators before."""
    order = list(dict.fromkeys(sites))
    alike = Counter(replace(site, after="", earlier="") for site in order)
    seen: Counter[WindowSite] = Counter()
    numbered = {}
    for site in order:
        plain = replace(site, after="", earlier="")
        seen[plain] += 1
        numbered[site] = replace(site, ordinal=seen[plain], alike=alike[plain])
    return [numbered[site] for site in sites]
