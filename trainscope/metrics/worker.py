"""The one background thread of a Scope: it runs small tasks every half second."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from trainscope.metrics.fork import drop_in_child
from trainscope.metrics.warn import warn

__all__ = ["Lulls", "Worker"]

_RUN_NOW_S = 5.0
_LULL_S = 0.05
"""A lull that has not come by then is not waited for: the loop may be evaluating, or over."""


class Lulls(Protocol):
    """Tells when the loop's thread is about to leave the interpreter alone for a while."""

    at_lull: Callable[[], object] | None
    """Called once, on that thread, as the next such time begins."""


class Worker:
    """Runs every task each ``interval_s`` seconds on a daemon thread named ``trainscope-worker``.

    Those added by ``add_prompt`` also run in between, when someone calls ``wake`` or ``again_in``:
    each time the thread is awake it takes the interpreter from the user's loop, so the others do
    not run then. Where the loop's lulls are known it works in those, as far as it can wait: there
    it takes nothing. A task that raises is dropped with one warning; the others go on. A forked
    child has no worker: there every method does nothing.
    """

    def __init__(self, interval_s: float = 0.5) -> None:
        self.interval_s = interval_s
        self._tasks: list[Callable[[], None]] = []
        self._prompt: list[Callable[[], None]] = []
        # SimpleQueue.put may be interrupted by a signal handler that calls it again;
        # threading.Event may not, it would wait for a lock that its own thread holds
        self._alarm: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._again_s = interval_s
        self._lulls: Lulls | None = None
        self._lulls_come = False
        self._thread: threading.Thread | None = None
        self._closing = False
        self._done = False
        self._rounds_asked = 0
        self._rounds_done = 0
        drop_in_child(self)

    @property
    def running(self) -> bool:
        """Whether the thread is there to run tasks."""
        return self._thread is not None and self._thread.is_alive() and not self._done

    def add(self, task: Callable[[], None]) -> None:
        """Run ``task`` on the worker from now on."""
        self._tasks.append(task)

    def add_prompt(self, task: Callable[[], None]) -> None:
        """Run ``task`` on the worker from now on, also when it is woken within an interval."""
        self._tasks.append(task)
        self._prompt.append(task)

    def follow(self, lulls: Lulls) -> None:
        """Work in these lulls from now on, while they come."""
        self._lulls = lulls

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(
                target=self._run_rounds, name="trainscope-worker", daemon=True
            )
            self._thread.start()

    def wake(self) -> None:
        """Run the prompt tasks now instead of at the end of the interval; never waits."""
        if self._alarm.empty():
            self._alarm.put(None)

    def wake_in_lull(self) -> None:
        """Run the prompt tasks in the loop's next lull; now, where none is known to come."""
        lulls = self._lulls
        if lulls is not None and self._lulls_come:
            lulls.at_lull = self.wake
        else:
            self.wake()

    def again_in(self, seconds: float) -> None:
        """From within a prompt task: run it again after ``seconds``, or in a lull at that time."""
        if self._lulls is not None and self._lulls_come:
            self._lulls.at_lull = self.wake
            seconds = max(seconds, _LULL_S)
        self._again_s = min(self._again_s, seconds)

    def run_now(self) -> None:
        """Run every task now, on the worker, and wait for it, but not for ever."""
        # the round that is under way may have passed a task already: only the next one counts
        self._rounds_asked = asked = self._rounds_asked + 1
        deadline_s = time.monotonic() + _RUN_NOW_S
        while self.running and self._rounds_done < asked and time.monotonic() < deadline_s:
            self.wake()
            time.sleep(0.001)

    def close(self, timeout_s: float = 30.0) -> None:
        """Run every task a last time and end the thread, waiting at most ``timeout_s`` for it."""
        self._closing = True
        if not self.running:
            return
        self.wake()
        deadline_s = time.monotonic() + timeout_s
        # polled, not joined: a signal handler may come here while its own thread is in this loop
        while self.running and time.monotonic() < deadline_s:
            time.sleep(0.001)
        if self.running:
            warn(f"the background worker was still busy after {timeout_s:g} s and was left behind")

    def drop_after_fork(self) -> None:
        """Forget the parent's thread and tasks."""
        self._closing = True
        self._done = True
        self._tasks, self._prompt = [], []
        self._lulls = None
        self._alarm = queue.SimpleQueue()

    def _run_rounds(self) -> None:
        while not self._closing:
            self._again_s = self.interval_s
            self._run_all()
            over_s = time.monotonic() + self.interval_s
            while (left_s := over_s - time.monotonic()) > 0:
                again = self._again_s < left_s
                try:
                    self._alarm.get(timeout=self._again_s if again else left_s)
                except queue.Empty:
                    if not again:  # nobody called: the interval is over
                        self._await_lull()
                        break
                if self._closing or self._rounds_asked > self._rounds_done:
                    break
                self._again_s = self.interval_s
                self._run(self._prompt)
        self._run_all()
        self._done = True

    def _await_lull(self) -> None:
        lulls = self._lulls
        if lulls is None:
            return
        lulls.at_lull = self.wake
        with suppress(queue.Empty):
            self._alarm.get(timeout=_LULL_S)
        self._lulls_come = lulls.at_lull is None  # else it was somebody else who called, or nobody
        lulls.at_lull = None

    def _run_all(self) -> None:
        asked = self._rounds_asked
        self._run(self._tasks)
        self._rounds_done = asked

    def _run(self, tasks: list[Callable[[], None]]) -> None:
        for task in tuple(tasks):
            try:
                task()
            except Exception as error:
                for added in (self._tasks, self._prompt):
                    if task in added:
                        added.remove(task)
                name = getattr(task, "__qualname__", repr(task))
                warn(f"background task {name} failed and is switched off: {error!r}")
