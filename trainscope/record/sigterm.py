"""SIGTERM: run something first, then let it do what it would have done."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Sigterm"]


class Sigterm:
    """Calls ``on_death`` before the default action, ``on_handled`` before a handler of the program.

    On the main thread it is a Python signal handler. Other threads may not install one: there the
    C handler of ``faulthandler`` writes into a pipe that a thread of ours reads.
    """

    def __init__(self, on_death: Callable[[], None], on_handled: Callable[[], None]) -> None:
        self._on_death = on_death
        self._on_handled = on_handled
        self._previous: Any = None
        self._installed = False
        self._pipe: _Pipe | None = None
        self._holders: set[object] = set()
        self._held = False

    def install(self) -> None:
        """Take SIGTERM over; a second call, or an ignored SIGTERM, changes nothing."""
        if self._installed or self._pipe is not None:
            return
        previous = signal.getsignal(signal.SIGTERM)
        if previous is signal.SIG_IGN or previous is None:  # None: a C handler we cannot call
            return
        if threading.current_thread() is threading.main_thread():
            self._previous = previous
            signal.signal(signal.SIGTERM, self._handle)
            self._installed = True
        elif hasattr(faulthandler, "register"):
            self._pipe = _Pipe(self._came, chain=callable(previous))

    def remove(self) -> None:
        """Put back what was there, unless the program has installed something over it."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._installed and signal.getsignal(signal.SIGTERM) == self._handle:
            if threading.current_thread() is not threading.main_thread():
                return  # stays, and passes on to what was there before
            signal.signal(signal.SIGTERM, self._previous)
        self._installed = False

    def hold(self, holder: object) -> None:
        """Until ``holder`` releases it, only remember that a SIGTERM came."""
        self._holders.add(holder)

    def release(self, holder: object) -> bool:
        """True when a SIGTERM came meanwhile and nobody else is holding; once more does nothing."""
        self._holders.discard(holder)
        if self._holders:
            return False
        held, self._held = self._held, False
        return held

    def again(self) -> None:
        """Send the SIGTERM that was held back, now to whoever is next."""
        os.kill(os.getpid(), signal.SIGTERM)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._holders:
            self._held = True
            return
        previous = self._previous
        if callable(previous):
            self._on_handled()
            previous(number, frame)
            return
        self._on_death()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.again()

    def _came(self, chained: bool) -> None:
        """On the thread behind the pipe."""
        if self._holders:
            self._held = True
        elif chained:
            self._on_handled()
        else:
            self._on_death()
            self.remove()
            self.again()


class _Pipe:
    def __init__(self, came: Callable[[bool], None], *, chain: bool) -> None:
        self._came = came
        self._chain = chain
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)  # a signal handler must not wait for the reader
        faulthandler.register(signal.SIGTERM, self._writer, all_threads=False, chain=chain)
        self._open = True
        threading.Thread(target=self._watch, name="trainscope-sigterm", daemon=True).start()

    def close(self) -> None:
        if self._open:
            self._open = False
            faulthandler.unregister(signal.SIGTERM)
            os.close(self._writer)  # the reader sees the end of the file

    def _watch(self) -> None:
        try:
            while os.read(self._reader, 65536):
                self._came(self._chain)
        finally:
            os.close(self._reader)
