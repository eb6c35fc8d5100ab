"""One window from its warm-up to its file: which steps it covers and how long it held the loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

from trainscope.record.capture.foreign import Watch
from trainscope.record.capture.nsys_window import NsysWindow
from trainscope.record.capture.torch_window import TorchWindow
from trainscope.trace.captures import CaptureWindow

__all__ = ["OneWindow"]


class OneWindow:
    """Drives a ``TorchWindow`` or an ``NsysWindow``.

    ``on_other`` is called before another profiler begins while the window is open.
    """

    def __init__(
        self,
        window: TorchWindow | NsysWindow,
        *,
        first_step: int,
        last_step: int,
        on_other: Callable[[], None],
    ) -> None:
        self.window = window
        self.first_step = first_step
        self.last_step = last_step
        self.first_active_step: int | None = None
        self.done_step = first_step
        self.fault: OSError | None = None
        """Why the trace could not be written."""
        self._pause_ns = 0
        self._watch: Watch | None = None
        if isinstance(window, TorchWindow):
            self._watch = Watch(lambda session: session is window.session, on_other)

    def prepare(self) -> None:
        """Begin the warm-up."""
        began_ns = perf_counter_ns()
        self.window.prepare()
        if self._watch is not None:
            self._watch.start()
        self._pause_ns += perf_counter_ns() - began_ns

    def start(self, step: int) -> None:
        """Begin to record, before ``step``."""
        began_ns = perf_counter_ns()
        self.first_active_step = step
        self.window.start()
        self._pause_ns += perf_counter_ns() - began_ns

    def finish(self, path: Path, *, complete: bool) -> CaptureWindow:
        """Stop and write to ``path``; ``file`` of the result is None where no trace came of it."""
        began_ns = perf_counter_ns()
        self._unwatch()
        stopped = self.window.stop()
        size_bytes = 0
        file = None
        if isinstance(self.window, TorchWindow) and stopped:
            try:
                size_bytes = self.window.write(path)
                file = path.name
            except OSError as fault:
                self.fault = fault
        complete &= file is not None if isinstance(self.window, TorchWindow) else stopped
        self._pause_ns += perf_counter_ns() - began_ns
        return self._record(file, size_bytes, complete=complete)

    def cancel(self) -> None:
        """Leave the warm-up; nothing was recorded."""
        self._unwatch()
        self.window.cancel()

    def abandon(self, *, stop: bool) -> CaptureWindow | None:
        """Give the window up after a fault; with ``stop=False`` the profiler is not touched.

        Returns what stands of it: None when it had not begun to record.
        """
        self._unwatch()
        if stop:
            with suppress(Exception):  # the fault that led here is the one to tell
                self.window.cancel() if self.first_active_step is None else self.window.stop()
        return None if self.first_active_step is None else self._record(None, 0, complete=False)

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def _record(self, file: str | None, size_bytes: int, *, complete: bool) -> CaptureWindow:
        active = self.first_active_step
        assert active is not None
        return CaptureWindow(
            first_step=self.first_step,
            first_active_step=active,
            last_step=max(active, self.done_step),
            file=file,
            kind=self.window.kind,
            complete=complete,
            pause_ns=self._pause_ns,
            bytes_written=size_bytes,
            stays=self.window.why_it_stays(),
        )
