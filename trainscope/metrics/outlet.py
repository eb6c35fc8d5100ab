"""One sink behind a bounded queue and a thread of its own, so that it can hold up nobody."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence

from trainscope.metrics.fork import drop_in_child
from trainscope.metrics.records import MetricRecord, Sink, SinkContext
from trainscope.metrics.warn import warn
from trainscope.trace.metrics import SinkState

__all__ = ["FAILURES_ALLOWED", "QUEUE_LIMIT", "Outlet"]

QUEUE_LIMIT = 20_000
"""Records a sink may lag behind, some 10 MB of them; what comes after is dropped and counted."""
FAILURES_ALLOWED = 3
"""Failed writes in a row after which a sink gets nothing any more."""


class Outlet:
    """Feeds one sink. ``offer`` is called by the worker alone; the sink runs on its own thread."""

    def __init__(self, sink: Sink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._queue: queue.SimpleQueue[Sequence[MetricRecord] | None] = queue.SimpleQueue()
        self._offered = 0
        self._refused = 0  # written by the worker
        self._taken = 0  # this and the following: written by the sink's thread
        self._written = 0
        self._failed = 0
        self._failures_in_a_row = 0
        self._disabled = False
        self._error: str | None = None
        self._ended = False
        self._dead = False
        self._told_full = False
        self._thread = threading.Thread(
            target=self._run, name=f"trainscope-sink-{sink.name}", daemon=True
        )
        drop_in_child(self)
        self._thread.start()

    def offer(self, records: Sequence[MetricRecord]) -> None:
        """Queue the records, or drop those that do not fit; never waits."""
        if self._dead or not records:
            return
        room = QUEUE_LIMIT - (self._offered - self._taken)
        fitting = records if len(records) <= room else records[: max(room, 0)]
        if len(fitting) < len(records):
            self._refused += len(records) - len(fitting)
            if not self._told_full:
                self._told_full = True
                warn(
                    f"sink {self._sink.name!r} is {QUEUE_LIMIT} records behind; what it cannot "
                    f"take is dropped and counted, the loop and the other sinks go on"
                )
        if fitting:
            self._offered += len(fitting)
            self._queue.put(fitting)

    @property
    def idle(self) -> bool:
        """Whether the sink has taken all it was offered."""
        return self._taken == self._offered or self._ended or self._dead

    def finish(self) -> None:
        """Nothing more comes: let the sink write what is queued and close, in its own time."""
        self._queue.put(None)

    def join(self, deadline_s: float) -> None:
        """Wait until ``time.monotonic()`` is ``deadline_s`` for it to end; say what is lost."""
        # polled, not joined: a signal handler may come here while its own thread is in this loop
        while not self._ended and self._thread.is_alive() and time.monotonic() < deadline_s:
            time.sleep(0.001)
        if self._dead or self._ended:
            return
        self._dead = True
        lost = self._offered - self._taken
        warn(
            f"sink {self._sink.name!r} was still busy when closing gave up on it: "
            + (f"{lost} of {self._offered} records are lost there" if lost else "it had them all")
        )

    def state(self) -> SinkState:
        """What became of the records so far."""
        lost = self._offered - self._taken if self._dead else 0
        return SinkState(
            name=self._sink.name,
            written=self._written,
            dropped=self._refused + self._failed + lost,
            disabled=self._disabled,
            error=self._error,
            note=getattr(self._sink, "note", None),
        )

    def drop_after_fork(self) -> None:
        """The child has no thread for the sink and must not write to the parent's files."""
        self._dead = True
        self._ended = True
        self._queue = queue.SimpleQueue()
        self._queue.put(None)  # the child may be the sink's own, in its `write`

    def _run(self) -> None:
        sink = self._sink
        opened = self._tried(lambda: sink.open(self._context))
        if not opened:
            self._switch_off("open")
        while (records := self._queue.get()) is not None:
            if self._disabled:
                self._failed += len(records)
            elif self._tried(lambda batch=records: sink.write(batch)):
                self._written += len(records)
                self._failures_in_a_row = 0
            else:
                self._failed += len(records)
                self._failures_in_a_row += 1
                if self._failures_in_a_row >= FAILURES_ALLOWED:
                    self._switch_off(f"write ({FAILURES_ALLOWED} times in a row)")
            self._taken += len(records)
        if self._ended:
            # a child that a `write` has forked and come back in: this is its only thread, and
            # Python 3.11 does not survive the end of it
            os._exit(0)
        if opened and not self._tried(sink.close):
            warn(f"sink {sink.name!r} failed in close, its last records may be lost: {self._error}")
        self._ended = True

    def _tried(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except BaseException as error:  # a library's SystemExit must not end the thread unseen
            self._error = f"{type(error).__name__}: {error}"
            return False
        return True

    def _switch_off(self, where: str) -> None:
        self._disabled = True
        warn(
            f"sink {self._sink.name!r} failed in {where} and is switched off: {self._error}; "
            f"the loop and the other sinks go on"
        )
