"""What the program calls in each of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING

from trainscope.errors import TrainscopeError
from trainscope.record.annotations import ProfilerAnnotations
from trainscope.record.capture import Capture
from trainscope.record.ranges import NullRange, Range, new_range

if TYPE_CHECKING:
    from trainscope.record.session import Session

__all__ = ["LoopCalls"]


class LoopCalls:
    """Begins and ends the steps of ``session``, and takes the ranges and values in them.

    The hot path: none of it waits, and a fault of ours ends the recording, never the loop.
    """

    def __init__(self, session: Session) -> None:
        self._recorder = session.recorder
        self._loop = session.recorder.loop
        self._detector = session.detector
        self._hooks = session.hooks
        self._capture = session.capture
        self._metrics = session.metrics
        self._faults = session.faults
        self._noted_waits = session.noted_waits
        self._annotations = ProfilerAnnotations()
        self._ranges: dict[str, Range] = {}
        self._first_step = self._next_step = session.settings.start_step
        self.own_ns = 0
        """CPU time on the loop's thread of all but the ranges."""
        self.open = True
        """What is called is recorded; False once the recording has ended."""
        self.forked = False
        """This is a forked child, which the recording is not of."""

    @property
    def last_step(self) -> int | None:
        """The newest step that has ended; None before one has."""
        return self._next_step - 1 if self._next_step > self._first_step else None

    def begin_step(self) -> None:
        """Begin the next step; one left open by an exception is ended first."""
        if not self.open:
            return
        try:
            recorder = self._recorder
            if recorder.step >= 0:
                self.end_step()
            step = self._next_step
            capture = self._capture
            if capture is not None and step >= capture.begin_at:
                self._advance(capture, step)
            began_ns = perf_counter_ns()
            self._detector.begin_step(step)
            self._hooks.begin_step()
            self.own_ns += recorder.begin_step(step) - began_ns
        except Exception as fault:
            self._faults.give_up(fault)

    def next_step(self) -> None:
        """End the open step and begin the next: what a loop does that has come round.

        It is ``end_step`` and ``begin_step``; where no window begins or ends and the metrics want
        nothing it is both in one.
        """
        recorder, capture = self._recorder, self._capture
        step = recorder.step
        if (
            step < 0
            or not self.open
            or self._metrics.wants_step_end
            or (capture is not None and (step >= capture.end_at or step + 1 >= capture.begin_at))
        ):
            self.end_step()
            self.begin_step()
            return
        began_ns = perf_counter_ns()
        try:
            self._next_step = following = step + 1
            self._detector.begin_step(following)
            self._hooks.begin_step()
            self.own_ns += recorder.next_step(began_ns) - began_ns
        except Exception as fault:
            self._faults.give_up(fault)

    def _advance(self, capture: Capture, step: int) -> None:
        """A window may begin or end with this step."""
        capture.begin_step(step)
        self._recorder.window = self._annotations if capture.in_window else None
        self._detector.noted = self._noted_waits if capture.in_window else None

    def end_step(self, end_ns: int | None = None) -> None:
        """End the step that is open; ``end_ns`` is when it ended, where that was before now."""
        if not self.open:
            return
        began_ns = perf_counter_ns()
        recorder = self._recorder
        step = recorder.step
        if step < 0:
            return
        try:
            self._next_step = step + 1  # first: an interrupt here must not give a number twice
            recorder.end_step(began_ns if end_ns is None else end_ns)
            self._metrics.end_step(step)
        except TrainscopeError:
            raise  # a NaN that the user asked to be stopped at
        except Exception as fault:
            self._faults.give_up(fault)
        finally:
            self.own_ns += perf_counter_ns() - began_ns
        capture = self._capture
        if capture is not None and step >= capture.end_at and self.open:
            try:
                capture.end_step(step)
            except Exception as fault:
                self._faults.give_up(fault)

    def drop_step(self) -> None:
        """Forget the open step: the loader had no batch for it. The next one takes its number."""
        if self.open:
            self._recorder.drop_step()
            self._detector.drop_step()

    def range(self, name: str) -> Range | NullRange:
        """Return the range of that name; on another thread than the loop's one that does nothing.

        The steps are the loop's, so what other threads do in the meantime is not recorded.
        Raises ConfigError for a name that is no string.
        """
        if get_ident() != self._loop.thread_id or not self.open:
            return NullRange()
        try:
            return self._ranges[name]
        except (KeyError, TypeError):  # a new name, or one that cannot be
            return new_range(self._recorder, self._ranges, name)

    def log(self, values: Mapping[str, object]) -> None:
        """Log values of the open step, or of the last one when called between steps."""
        if not self.open:
            if self.forked:
                self._faults.logged_in_child()
            else:
                self._faults.logged_too_late()
            return
        began_ns = perf_counter_ns()
        step = self._recorder.step
        if step < 0:
            step = max(self._next_step - 1, self._first_step)
        try:
            self._metrics.log(step, values, began_ns)
        except TrainscopeError:
            raise
        except Exception as fault:
            self._faults.not_logged(fault)
        self.own_ns += perf_counter_ns() - began_ns
