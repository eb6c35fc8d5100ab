"""``Capture``: turns a schedule into windows while the loop runs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from trainscope.notice import warn
from trainscope.record.capture.cupti import see_off
from trainscope.record.capture.foreign import other_profiler
from trainscope.record.capture.nsys_window import NsysWindow, under_nsys
from trainscope.record.capture.one_window import OneWindow
from trainscope.record.capture.torch_window import TorchWindow
from trainscope.record.schedule import Action, Schedule
from trainscope.sync.own import own_work
from trainscope.trace.captures import CaptureState, CaptureWindow

__all__ = ["Capture"]

_NEVER = sys.maxsize
_AT_ONCE = -sys.maxsize


class Capture:
    """Opens and closes the windows of a schedule; outside them a step costs two comparisons.

    Steps before ``begin_at`` need not be told by ``begin_step``, nor those before ``end_at`` by
    ``end_step``.

    The schedule counts from the first step seen, so a run resumed at step 1000 waits as long as a
    fresh one. A fault of ours, a full disk among them, ends the capturing with one warning and
    never reaches the loop. All but ``state`` is called on the loop's thread.
    """

    def __init__(
        self,
        schedule: Schedule | None,
        rank_dir: Path,
        *,
        with_stack: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.in_window = False
        """Whether a ``record_function`` range would be recorded now."""
        self._schedule = schedule
        self._rank_dir = rank_dir
        self._with_stack = with_stack
        self._nsys = under_nsys(os.environ if environ is None else environ)
        self._first_step: int | None = None
        self._last_ended: int | None = None
        self.begin_at = _NEVER if schedule is None else _AT_ONCE
        """The first step whose beginning may change something."""
        self.end_at = _NEVER
        """The first step whose end may."""
        self._open: OneWindow | None = None
        self._windows: tuple[CaptureWindow, ...] = ()
        self._missing: dict[str, None] = {}
        self._notes: tuple[str, ...] = ()
        self._whole = True  # no window was refused, cut short or lost so far
        self._stopped = False  # for a full disk's sake or another fault's, or at max_bytes
        self._closed = False
        self._pid = os.getpid()
        self._thread_id = 0

    # ---- hot path -----------------------------------------------------------------------------
    def begin_step(self, step: int) -> None:
        """The loop is about to begin ``step``; steps come in rising order."""
        if step >= self.begin_at:
            self._guarded(self._advance, step)

    def end_step(self, step: int) -> None:
        """The loop has ended ``step``."""
        self._last_ended = step
        if step >= self.end_at:
            self._guarded(self._step_done, step)

    # ---- afterwards ---------------------------------------------------------------------------
    def close(self, last_ended: int | None = None) -> None:
        """Cut an open window short, write it, say what was not captured; later calls do nothing.

        ``last_ended`` is the last step that has ended, where its end may not have been told.
        """
        if self._closed or os.getpid() != self._pid:  # a fork's copy of the window is not its own
            return
        if last_ended is not None:
            self._last_ended = last_ended
        self._closed = True
        self.begin_at = _NEVER
        if self._open is None:
            self._say_what_never_began()
        elif threading.get_ident() != self._thread_id:
            self._give_up("the run was closed on another thread, which cannot stop the profiler")
        else:
            self._guarded(self._cut_short, f"the run ended {self._when()}")
        see_off()

    def state(self) -> CaptureState:
        """What has been captured so far; safe to call on another thread."""
        schedule = self._schedule
        if schedule is None:
            return CaptureState()
        windows = self._windows
        enough = self._stopped or len(windows) >= max(schedule.repeat, 1)
        return CaptureState(
            windows=windows,
            complete=self._whole and enough,
            missing=tuple(self._missing),
            note="; ".join(self._notes),
        )

    # ---- inside -------------------------------------------------------------------------------
    def _advance(self, step: int) -> None:
        schedule = self._schedule
        assert schedule is not None
        if self._first_step is None:
            self._first_step = step
        elif step > self._first_step:
            self._last_ended = step - 1
        if self._open is not None and step > self._open.last_step:
            self._cut_short(f"its last step had no end when step {step} began")
        index = step - self._first_step
        if self._open is None:
            start = None if self._stopped else schedule.next_window(index)
            if start == index and not self._begin_window(step):
                start = schedule.next_window(index + 1)
            if self._open is None:
                self.begin_at = _NEVER if start is None else self._first_step + start
                return
        window = self._open
        assert window is not None
        if window.first_active_step is None and schedule.action(index) is not Action.WARMUP:
            window.start(step)
            self.in_window = window.window.records_here
        self.begin_at = step + 1 if window.first_active_step is None else window.last_step + 1

    def _begin_window(self, step: int) -> bool:
        """Switch a window on; False when another profiler has the right of way."""
        assert self._schedule is not None
        other = None if self._nsys else other_profiler()
        if other is not None:
            self._lost(f"the window at step {step} was not captured: {other}")
            return False
        self._thread_id = threading.get_ident()
        self._open = OneWindow(
            NsysWindow() if self._nsys else TorchWindow(with_stack=self._with_stack),
            first_step=step,
            last_step=step + self._schedule.warmup + self._schedule.active - 1,
            on_other=self._give_way,
        )
        self._open.prepare()
        self.end_at = step
        return True

    def _step_done(self, step: int) -> None:
        if self._open is not None:
            self._open.done_step = step
            if step >= self._open.last_step:
                self._finish(self._close_window(), complete=True)

    def _give_way(self) -> None:
        """The program's own profiler is about to begin, in a call of the program's."""
        if self._open is not None and threading.get_ident() == self._thread_id:
            why = f"a torch profiler of the program's own began {self._when()}"
            self._guarded(self._cut_short, why)

    def _cut_short(self, why: str) -> None:
        window = self._close_window()
        if window.first_active_step is None:
            self._lost(f"the window at step {window.first_step} ended in its warm-up: {why}")
            window.cancel()
        else:
            self._lost(f"the window at step {window.first_step} was cut short: {why}")
            self._finish(window, complete=False)

    def _close_window(self) -> OneWindow:
        """Nothing is open any more, whatever the profiler does next."""
        window = self._open
        assert window is not None
        self._open = None
        self.in_window = False
        self.end_at = _NEVER
        if not self._closed:
            self.begin_at = _AT_ONCE  # the next step looks for the next window
        return window

    def _finish(self, window: OneWindow, *, complete: bool) -> None:
        """Stop a window and write it."""
        assert self._schedule is not None
        done = window.finish(self._free_path(), complete=complete)
        self._windows += (done,)
        self._missing.update(dict.fromkeys(window.window.missing()))
        if window.fault is not None:
            self._give_up(f"{type(window.fault).__name__}: {window.fault}")
        elif not done.complete and done.kind == NsysWindow.kind:
            self._whole = False
        elif complete and not done.complete:
            self._lost(f"the window at step {done.first_step} was lost: another profiler ended it")
        written_bytes = sum(window.bytes_written for window in self._windows)
        if written_bytes >= self._schedule.max_bytes and self._schedule.repeat != len(
            self._windows
        ):
            self._stopped = True
            self._notes += (
                f"no window begins after step {done.last_step}: the traces hold {written_bytes} "
                f"bytes, and max_bytes={self._schedule.max_bytes}",
            )

    def _free_path(self) -> Path:
        number = len(self._windows)
        while (path := self._rank_dir / f"trace-{number:03d}.json.gz").exists():
            number += 1
        return path

    def _say_what_never_began(self) -> None:
        schedule = self._schedule
        if schedule is None or self._windows or not self._whole:
            return
        begins = schedule.skip_first + schedule.wait + (self._first_step or 0)
        last = self._last_ended
        ended = "no step ended" if last is None else f"the last step that ended was {last}"
        self._lost(f"{ended}, the window would have begun at step {begins}")

    def _when(self) -> str:
        """The step last ended; one that a loader's end leaves begun does not count."""
        last = self._last_ended
        return "before its first step was over" if last is None else f"after step {last}"

    # ---- faults -------------------------------------------------------------------------------
    def _lost(self, note: str) -> None:
        self._notes += (note,)
        self._whole = False

    def _guarded(self, act: Callable[..., None], *args: object) -> None:
        try:
            with own_work():
                act(*args)
        except Exception as fault:
            self._give_up(f"{type(fault).__name__}: {fault}")

    def _give_up(self, why: str) -> None:
        """No further window; one warning, and the loop goes on."""
        window, self._open = self._open, None
        self.in_window = False
        # the next step, to be told that it is in no window
        self.begin_at, self.end_at = _NEVER if self._closed else _AT_ONCE, _NEVER
        self._stopped = True
        if window is not None:
            remains = window.abandon(stop=threading.get_ident() == self._thread_id)
            if remains is not None:
                self._windows += (remains,)
        self._lost(f"capturing stopped: {why}")
        text = f"trainscope stopped capturing ({why}); the training goes on and is still recorded"
        warn(text, stacklevel=2)
