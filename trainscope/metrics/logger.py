"""``MetricsLogger``: take values where they are, deliver them when they have arrived."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from trainscope.errors import ConfigError, NonFiniteError
from trainscope.metrics.arrivals import Arrivals
from trainscope.metrics.delivery import Delivery
from trainscope.metrics.fork import drop_in_child
from trainscope.metrics.gather import load_awaited
from trainscope.metrics.generation import ENTRY_LIMIT, Blocks, Generation
from trainscope.metrics.lanes import stream_is_capturing
from trainscope.metrics.outlet import Outlet
from trainscope.metrics.records import Sink, SinkContext
from trainscope.metrics.reduce import Intervals, check_reduce
from trainscope.metrics.split import Splitter
from trainscope.metrics.values import capturing
from trainscope.metrics.warn import warn
from trainscope.metrics.worker import Worker
from trainscope.trace.metrics import MetricsState

__all__ = ["GENERATIONS", "MetricsLogger"]

GENERATIONS = 4
"""One is filled, the others are on their way: the GPU may lag this many flushes behind."""

_POLL_S = 0.002
_POLL_AT_MOST_S = 0.05
_LEAST_SINK_S = 1.0


class MetricsLogger:
    """Logs numbers and one-element tensors without waiting for the device they are on.

    ``log`` enqueues one launch that copies the values into rows on the device. When the worker's
    interval is over, the next ``log`` or ``end_step`` notes the place in the stream with an event;
    the worker copies the rows to the host on a stream of its own, polls for them, and feeds the
    sinks, each on its own thread. When all rows are on their way, new calls are dropped and
    counted.

    Args:
        sinks: where the records go; each is opened, fed and closed on a thread of its own.
        context: where the run lies, for the sinks.
        worker: the thread that fetches; the caller starts it.
        every: write one record for each interval of so many steps (see ``Intervals``).
        reduce: how an interval becomes one value: ``"mean"``, ``"last"``, ``"sum"``, ``"min"`` or
            ``"max"``, or a mapping from metric name to one of them.
        stop_on_nan: raise ``NonFiniteError`` once, at the first ``log`` or ``end_step`` after a
            NaN or an infinite value has arrived.

    Raises:
        ConfigError: ``every`` or ``reduce`` is not allowed.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        context: SinkContext,
        worker: Worker,
        every: int = 1,
        reduce: str | Mapping[str, str] = "mean",
        stop_on_nan: bool = False,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigError(f"every is {every!r}; it is a whole number of steps, 1 or more")
        check_reduce(reduce)
        self._worker = worker
        self._arrivals = Arrivals()
        self._outlets = tuple(Outlet(sink, context) for sink in sinks)
        blocks = Blocks(GENERATIONS)
        self._delivery = Delivery(
            [Generation(blocks) for _ in range(GENERATIONS)],
            self._arrivals,
            None if every == 1 else Intervals(every, reduce),
            self._outlets,
        )
        self._current = self._delivery.take_free()
        self._stop_on_nan = stop_on_nan
        self._stop: NonFiniteError | None = None
        self._splitter = Splitter()
        self._logged = 0
        self._dropped = 0
        self._open = True
        self._finished = False
        self._due = False
        self._due_s = 0.0
        self.wants_step_end = False
        """Whether ``end_step`` has something to do; set by the worker."""
        self._poll_s = _POLL_S
        self._sealed_s = time.monotonic()
        # re-entrant: a signal handler may close in the middle of log(), on the same thread
        self._lock = threading.RLock()
        drop_in_child(self)
        worker.add_prompt(self._tick)

    # ---- hot path -----------------------------------------------------------------------------
    def log(self, step: int, values: Mapping[str, object], logged_ns: int | None = None) -> None:
        """Log values of one step, each a number or a tensor of one element; never waits.

        A tensor's value is taken in stream order at the time of the call: later in-place changes
        do not show, and nothing of the autograd graph is kept. ``logged_ns`` is the time by
        ``perf_counter_ns`` where the caller has just asked for it.

        Raises:
            MetricError: a value is no number, a name is taken, or a CUDA graph is being captured.
            NonFiniteError: ``stop_on_nan`` is set and a bad value has arrived.
        """
        if self._stop is not None:
            self._raise_stop()
        if not values or not self._open:
            return
        layout, numbers, tensors = self._splitter.split(values)
        if not tensors and stream_is_capturing():
            raise capturing(layout.names[0])
        if logged_ns is None:
            logged_ns = time.perf_counter_ns()
        first_rows: Sequence[int] = ()
        with self._lock:
            self._logged += 1
            while (generation := self._current or self._renew()) is not None:
                entries = generation.entries
                if tensors:
                    first_rows = generation.copy(layout, tensors)
                    if not first_rows:  # they do not fit any more
                        self._seal()
                        continue
                # a signal handler that flushed in between has taken the rows away: once more
                if generation is self._current and generation.entries is entries:
                    break
            else:
                self._dropped += 1
                return
            entries.append((step, logged_ns, layout, numbers, first_rows))
            if self._due or len(entries) >= ENTRY_LIMIT:
                self._seal()

    def end_step(self, step: int) -> None:
        """Hand over what is due.

        Raises:
            NonFiniteError: ``stop_on_nan`` is set and a bad value has arrived.
        """
        self.wants_step_end = False  # first: what the worker wants meanwhile is not to be lost
        if self._stop is not None:
            self._raise_stop()
        if self._due:
            with self._lock:
                self._seal()

    def latest(self, name: str) -> float | int | None:
        """Return the newest value of ``name`` that has arrived, None before the first."""
        return self._arrivals.latest.get(name)

    def _renew(self) -> Generation | None:
        self._current = self._delivery.take_free()
        return self._current

    def _seal(self) -> None:
        """With the lock held: hand the current generation to the worker."""
        generation, can_wait = self._current, self._due
        self._due = False
        if generation is None or generation.is_empty:
            return
        self._sealed_s = time.monotonic()
        self._current = None
        generation.seal()
        self._delivery.hand_over(generation)
        if can_wait:
            self._worker.wake_in_lull()
        else:
            self._worker.wake()

    def _raise_stop(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            self._stop_on_nan = False  # once: cleaning up after it must not raise again
            raise stop

    # ---- on the worker ------------------------------------------------------------------------
    def _tick(self) -> None:
        if self._delivery.advance():
            # a device far behind is asked less and less often: each time takes the interpreter
            self._worker.again_in(self._poll_s)
            self._poll_s = min(2 * self._poll_s, _POLL_AT_MOST_S)
        else:
            self._poll_s = _POLL_S
        if self._stop_on_nan and self._stop is None and self._arrivals.nonfinite:
            name, step, value = self._arrivals.nonfinite[0]
            self._stop = NonFiniteError(
                f"metric {name!r} is {value} at step {step} and stop_on_nan is set; "
                f"look at the values of step {step} and before, or set stop_on_nan=False"
            )
            self.wants_step_end = True
        self._ask_for_rows()
        load_awaited()

    def _ask_for_rows(self) -> None:
        """Tell the loop that its rows are due, or seal them here when it does not come by."""
        generation = self._current
        now_s, wait_s = time.monotonic(), 0.9 * self._worker.interval_s
        if generation is None or not generation.entries or now_s - self._sealed_s < wait_s:
            return
        if not self._delivery.has_free:
            return  # the GPU is far behind: sealing now would leave no rows for the next call
        if not self._due:
            self._due_s = now_s
            self._due = self.wants_step_end = True
        elif now_s - self._due_s >= wait_s and self._lock.acquire(blocking=False):
            # evaluating or saving a checkpoint, say: the last values are not to wait for its end
            try:
                if self._current is not None and self._current.may_seal():
                    self._seal()
                    self._worker.wake()  # there may be no lull for long
            finally:
                self._lock.release()

    # ---- the end ------------------------------------------------------------------------------
    def flush(self, timeout_s: float = 5.0) -> None:
        """Bring everything logged so far to the sinks, waiting at most ``timeout_s`` for it."""
        if not self._open:
            return
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            self._seal()
        self._await_delivery(deadline_s)
        while time.monotonic() < deadline_s and not all(o.idle for o in self._outlets):
            time.sleep(_POLL_S)

    def close(self, timeout_s: float = 30.0) -> None:
        """Deliver what is left, close the sinks, and say what is lost; waits at most ``timeout_s``.

        Later ``log`` calls do nothing, nor does a second ``close``.
        """
        deadline_s = time.monotonic() + timeout_s
        self._open = False
        if self._finished:
            return
        with self._lock:
            self._seal()
        self._await_delivery(deadline_s)
        self._finished = True
        if self._delivery.outstanding:
            calls = self._delivery.calls_outstanding()
            self._dropped += calls
            warn(f"the GPU was still busy after {timeout_s:g} s: {calls} log calls are lost")
        else:
            self._delivery.finish()
        for outlet in self._outlets:
            outlet.finish()
        # a device that used up the time does not take it from the sinks
        deadline_s = max(deadline_s, time.monotonic() + _LEAST_SINK_S)
        for outlet in self._outlets:
            outlet.join(deadline_s)

    def _await_delivery(self, deadline_s: float) -> None:
        # waiting for the GPU is allowed here: the caller asked for its values
        while self._delivery.outstanding and time.monotonic() < deadline_s:
            if self._worker.running:
                self._worker.wake()
                time.sleep(_POLL_S)
            elif self._delivery.advance():
                time.sleep(_POLL_S)

    def state(self) -> MetricsState:
        """How much was logged, how much of it arrived, and what became of it in each sink."""
        return MetricsState(
            logged=self._logged,
            written=self._delivery.calls_written,
            dropped=self._dropped + self._delivery.calls_lost,
            nonfinite=tuple(self._arrivals.nonfinite),
            nonfinite_count=self._arrivals.nonfinite_count,
            sinks=tuple(outlet.state() for outlet in self._outlets),
        )

    def drop_after_fork(self) -> None:
        """In a forked child: log nothing, write nothing, take no lock that a lost thread holds."""
        self._open = False
        self._finished = True
        self._stop = None
        self._due = False
        self._lock: Any = threading.RLock()
