"""The ranges of one loop: which step and phase it is in, and when each range began and ended."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns

from trainscope.record.names import STEP_NAME, RangeNames
from trainscope.record.ranges import Range
from trainscope.record.shown import ShownRanges, TimelineDomain
from trainscope.record.unsure_rows import FIELDS, UnsureRows
from trainscope.sync.loop import LoopState

__all__ = ["MAX_WAITING_ROWS", "Recorder"]

DATA_NAME = "data"
MAX_WAITING_ROWS = 1 << 20
"""Rows that wait when nothing takes them away: about 150 MB; then they are dropped and counted."""


class Recorder:
    """State machine of the ranges of the loop's thread; it never waits and never raises.

    A range opened on another thread is not recorded: the steps are the loop's. ``rows``, of FIELDS
    numbers each, is filled here and emptied by the worker thread.
    """

    __slots__ = (
        "_keep", "_row_limit", "_step_end_ns", "_step_start_ns", "_tools", "_unsure",
        "backwards", "base", "forwards", "last_end_ns", "loop", "names", "on_event",
        "optimizer_steps", "over", "rows", "rows_dropped", "shown", "stack", "step", "steps_done",
    )  # fmt: skip

    def __init__(self, domain: TimelineDomain | None = None) -> None:
        self.loop = LoopState()
        self.loop.find_phase = self._phase
        self._tools = ShownRanges(domain)
        self.shown = domain is not None
        """Whether a tool shows the ranges now, so that they cost more than a row."""
        self.rows: list[int] = []
        self._row_limit = MAX_WAITING_ROWS * FIELDS
        self._unsure = UnsureRows(self.rows)
        self.rows_dropped = 0
        self.names = RangeNames()
        self.step = -1
        self.steps_done = 0
        self.forwards = 0
        self.backwards = 0
        self.optimizer_steps = 0
        self.on_event: Callable[[str], object] | None = None
        """Called with "forward", "backward" or the like before the hooks open such a range."""
        self.last_end_ns = 0
        """When the newest range ended."""
        self.over = False
        """Closed for good: nothing is recorded any more."""
        self.stack: list[tuple[int, int]] = []
        """The open ranges: name_id, start_ns. The token of one is how many are open with it."""
        self._keep = True
        """Whether what is closed leaves a row."""
        self.base = 0
        """How many ranges were open when the step began; 0 outside a step."""
        self._step_start_ns = 0
        self._step_end_ns = 0

    def _phase(self) -> str | None:
        stack, base = self.stack, self.base
        if self.step < 0 or len(stack) <= base:
            return None
        number, names = stack[base][0], self.names.listed
        return names[number] if number < len(names) else self.names.so_far()[number]

    @property
    def domain(self) -> TimelineDomain | None:
        """Where a tool that is attached for the whole run shows the ranges; None without one."""
        return self._tools.domain

    @domain.setter
    def domain(self, domain: TimelineDomain | None) -> None:
        self._tools.domain = domain
        self._see_tools()

    @property
    def window(self) -> TimelineDomain | None:
        """A profiler's annotations, while a window is captured."""
        return self._tools.window

    @window.setter
    def window(self, window: TimelineDomain | None) -> None:
        self._tools.window = window
        self._see_tools()

    def _see_tools(self) -> None:
        # a recording that is over asks `open` too: a range that the program has kept comes there
        self.shown = self._tools.any or self.over

    # ---- ranges -------------------------------------------------------------------------------
    def range(self, name: str) -> Range:
        """Return what opens and closes ranges of that name, on the loop's thread, most cheaply."""
        return Range(self, name)

    def open(self, name: str) -> int:
        """Open a range on the loop's thread; return the token that closes it (0: not recorded)."""
        if get_ident() != self.loop.thread_id or self.over:
            return 0
        stack = self.stack
        name_id = self.names.number(name)
        if self.shown:
            self._tools.open(len(stack) + 1, name)
        stack.append((name_id, perf_counter_ns()))
        return len(stack)

    def close(self, token: int) -> None:
        """Close the range of that token, and any opened inside it that was left open."""
        if token <= 0 or get_ident() != self.loop.thread_id:
            return
        end_ns = self.last_end_ns = perf_counter_ns()
        stack = self.stack
        base = 0
        if self.step >= 0:
            base = self.base
            if token <= base:  # a range around the loop ends, so the step in it has ended
                self.end_step()
                base = 0
        while (depth := len(stack)) >= token:
            name_id, start_ns = stack.pop()
            if self._keep:
                # a step's own ranges end with it, so what ends now is of the step that is open
                self.rows.extend((self.step, name_id, depth - base, start_ns, end_ns))
            if self.shown:
                self._tools.close(depth)
                self._see_tools()

    def close_aside(self, token: int) -> None:
        """Close a range outside a step, and keep it for a step that proves to have begun by then.

        Few are kept: the oldest go to the rows, in no step, as all do when the recording ends.
        """
        if self.step >= 0 or not 0 < token <= len(self.stack):
            self.close(token)
            return
        name_id, start_ns = self.stack[token - 1]
        self._keep = False
        self.close(token)
        self._keep = True
        if not self.over:
            self._unsure.keep((-1, name_id, token, start_ns, self.last_end_ns))

    def close_named(self, name_id: int) -> None:
        """Close the innermost open range of that name, and any left open inside it."""
        for token in range(len(self.stack), 0, -1):
            if self.stack[token - 1][0] == name_id:
                self.close(token)
                return

    # ---- steps --------------------------------------------------------------------------------
    def begin_step(self, step: int) -> int:
        """Open step number ``step`` and return when; one left open before it is closed first."""
        loop = self.loop
        loop.thread_id = get_ident()
        if self.step >= 0:
            self.end_step()
        if len(self.rows) > self._row_limit:
            self.rows_dropped += len(self.rows) // FIELDS
            self.rows.clear()
        loop.evaluating = False
        loop.started = True
        self._keep = True  # an interrupt may have left it otherwise
        self._unsure.step = None if self.on_event is None else step
        self.base = len(self.stack)
        if self.shown:
            self._tools.begin_step(f"{STEP_NAME} {step}")
        start_ns = self._step_start_ns = perf_counter_ns()
        # last: interrupted before, the step has not begun, and none gets another's start
        self.step = loop.step = step
        return start_ns

    def end_step(self, end_ns: int | None = None) -> None:
        """Close the step and its ranges; ``end_ns`` is when it ended, where that was before now."""
        step = self.step
        if step < 0:
            return
        if len(self.stack) > self.base:
            self.close(self.base + 1)
            end_ns = None
        start_ns = self._step_start_ns
        if end_ns is None:
            end_ns = perf_counter_ns()
        elif end_ns < start_ns:
            end_ns = start_ns
        keep = self._keep
        # no step any more before its row is there: an interrupt may lose it, not write it twice
        self.step = -1
        self.loop.step = None
        self.base = 0
        if self._unsure.step is not None:
            self._unsure.end_step(keep)
        if keep:
            self.rows.extend((step, 0, 0, start_ns, end_ns))
            self.steps_done += 1
            self._step_end_ns = end_ns
        if self.shown:
            self._tools.end_step()
            self._see_tools()

    def next_step(self, end_ns: int) -> int:
        """End the open step at ``end_ns`` and begin the one after it; return when it began.

        The usual turn of a loop, where nothing else is open, is written out: at each turn the
        caches hold torch's code, and every function of ours is another trip to memory.
        """
        step, rows = self.step, self.rows
        if (
            self.shown
            or self.on_event is not None
            or len(self.stack) != self.base
            or len(rows) > self._row_limit
            or not self._keep
        ):
            self.end_step(end_ns)
            return self.begin_step(step + 1)
        loop = self.loop
        loop.thread_id = get_ident()
        loop.evaluating = False
        # as in `end_step` and `begin_step`: in no step while one's row is written
        self.step = -1
        loop.step = None
        rows.extend((step, 0, 0, self._step_start_ns, end_ns))
        self.steps_done += 1
        self._step_end_ns = end_ns
        start_ns = self._step_start_ns = perf_counter_ns()
        self.step = loop.step = step + 1
        return start_ns

    def drop_step(self) -> None:
        """Close the step and its ranges and leave no row of them, as if it had not begun."""
        self._keep = False
        self.end_step()
        self._keep = True

    def backdate_step(self, start_ns: int) -> None:
        """The open step began then, but not before the end of the last; give it what was kept."""
        if self.step < 0:
            return
        start_ns = max(start_ns, self._step_end_ns)
        self._step_start_ns = min(start_ns, self._step_start_ns)
        self._unsure.give(self.step, start_ns, first_name_id=self.names.number(DATA_NAME))

    def step_is_sure(self) -> None:
        """The open step, which was inferred, will not be dropped."""
        self._unsure.step = None

    def close_all(self) -> None:
        """Close the step and every range: the loop was left for good."""
        self.loop.thread_id = get_ident()
        self.end_step()
        self.close(1)
        self._unsure.give_up()
        self.loop.finished = True
        self._end()

    def abandon(self) -> None:
        """Forget the open ranges and the rows, which are the parent's, in a forked child."""
        self.stack.clear()
        self.rows.clear()
        self._unsure.forget()
        self.step = -1
        self.loop.step = None
        self.base = 0
        self._tools.forget()
        self._end()

    def _end(self) -> None:
        self.over = True
        self._see_tools()

    # ---- inside -------------------------------------------------------------------------------
    def take_rows(self) -> list[int]:
        """Take away the finished rows' numbers; safe on another thread while the loop goes on."""
        return self._unsure.take()
