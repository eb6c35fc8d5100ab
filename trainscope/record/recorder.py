"""The ranges of one loop: which step and phase it is in, and when each range began and ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Protocol

from trainscope.sync.loop import LoopState

__all__ = ["STEP_NAME", "Recorder", "Row", "TimelineDomain"]

Row = tuple[int, int, int, int, int]
"""(step, name_id, depth, start_ns, end_ns); depth 0 is the step itself, step -1 is outside."""

STEP_NAME = "step"
MAX_WAITING_ROWS = 1 << 20
"""Rows kept when nothing takes them away (a full disk): about 200 MB; later ones are counted."""


class TimelineDomain(Protocol):
    """Where ranges are shown to an attached tool: NVTX, or a profiler's own annotations."""

    def push(self, name: str) -> None:
        """Open a range."""

    def pop(self) -> None:
        """Close the innermost range."""


class Recorder:
    """State machine of the ranges of the loop's thread; it never waits and never raises.

    A range opened on another thread is not recorded: the steps are the loop's. ``rows`` is filled
    here and emptied by the worker thread.
    """

    def __init__(self, loop: LoopState | None = None, domain: TimelineDomain | None = None) -> None:
        self.loop = loop if loop is not None else LoopState()
        self.domain = domain
        self.window: TimelineDomain | None = None
        """A profiler's annotations, while a window is captured."""
        self.rows: deque[Row] = deque()
        self.rows_dropped = 0
        self.names: dict[str, int] = {STEP_NAME: 0}
        self.step = -1
        self.steps_done = 0
        self.forwards = 0
        self.backwards = 0
        self.optimizer_steps = 0
        self.ranges = 0
        self.on_event: Callable[[str], None] | None = None
        """Called with "forward", "backward" or "optimizer" before the hooks open such a range."""
        self.last_end_ns = 0
        """When the newest range ended."""
        self._open: list[tuple[int, int, int, TimelineDomain | None]] = []
        self._keep = True
        self._base = 0  # ranges that were open when the step began
        self._step_start_ns = 0
        self._step_window: TimelineDomain | None = None

    # ---- ranges -------------------------------------------------------------------------------
    def open(self, name: str) -> int:
        """Open a range on the loop's thread; return the token that closes it (-1: not recorded)."""
        loop = self.loop
        if get_ident() != loop.thread_id:
            return -1
        stack = self._open
        name_id = self.names.get(name)
        if name_id is None:
            name_id = self.names[name] = len(self.names)
        if self.domain is not None:
            self.domain.push(name)
        window = self.window
        if window is not None:
            window.push(name)
        depth = len(stack)
        step = self.step
        if step >= 0 and depth == self._base:
            loop.phase = name
        stack.append((step, name_id, perf_counter_ns(), window))
        return depth

    def close(self, token: int) -> None:
        """Close the range of that token, and any opened inside it that was left open."""
        if token < 0 or get_ident() != self.loop.thread_id:
            return
        end_ns = self.last_end_ns = perf_counter_ns()
        stack = self._open
        base = 0
        if self.step >= 0:
            base = self._base
            if token == base:
                self.loop.phase = None
            elif token < base:  # a range around the loop ends, so the step in it has ended
                self.end_step()
                base = 0
        while len(stack) > token:
            step, name_id, start_ns, window = stack.pop()
            if self._keep:
                self.ranges += 1
                if len(self.rows) < MAX_WAITING_ROWS:
                    self.rows.append((step, name_id, len(stack) + 1 - base, start_ns, end_ns))
                else:
                    self.rows_dropped += 1
            if window is not None:
                window.pop()
            if self.domain is not None:
                self.domain.pop()

    # ---- steps --------------------------------------------------------------------------------
    def begin_step(self, step: int) -> None:
        """Open step number ``step``; a step left open before it is closed first."""
        loop = self.loop
        loop.thread_id = get_ident()
        if self.step >= 0:
            self.end_step()
        self.step = step
        loop.step = step
        loop.phase = None
        loop.started = True
        self._base = len(self._open)
        if self.domain is not None:
            self.domain.push(f"{STEP_NAME} {step}")
        window = self._step_window = self.window
        if window is not None:
            window.push(f"{STEP_NAME} {step}")
        self._step_start_ns = perf_counter_ns()

    def end_step(self, *, keep: bool = True, end_ns: int | None = None) -> None:
        """Close the step and its ranges; ``keep=False`` leaves no row, as if it had not begun.

        ``end_ns`` is when it ended, where that was before now.
        """
        step = self.step
        if step < 0:
            return
        self._keep = keep
        if len(self._open) > self._base:
            self.close(self._base)
            end_ns = None
        if keep:
            end_ns = perf_counter_ns() if end_ns is None else max(end_ns, self._step_start_ns)
            self.rows.append((step, 0, 0, self._step_start_ns, end_ns))
            self.steps_done += 1
        self._keep = True
        self.step = -1
        self.loop.step = None
        self._base = 0
        if self._step_window is not None:
            self._step_window.pop()
        if self.domain is not None:
            self.domain.pop()

    def close_all(self) -> None:
        """Close the step and every range: the loop was left for good."""
        self.loop.thread_id = get_ident()
        self.end_step()
        self.close(0)
        self.loop.finished = True

    # ---- inside -------------------------------------------------------------------------------
    def take_rows(self) -> list[Row]:
        """Take away the finished rows; safe on another thread while the loop goes on."""
        rows = self.rows
        taken: list[Row] = []
        for _ in range(len(rows)):
            taken.append(rows.popleft())
        return taken
