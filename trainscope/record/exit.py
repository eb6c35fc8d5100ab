"""Close a recording however the program ends, and leave how it ends as it was."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from types import TracebackType

from trainscope.notice import say
from trainscope.record.sigterm import Sigterm

__all__ = ["Handle", "at_end"]


class Handle:
    """One recording that is to be closed at the end of the program, once it is on the list.

    As a context manager around the closing itself: a SIGTERM that comes meanwhile takes effect
    when the block is left, and the recording is off the list then, unless it was interrupted.
    """

    def __init__(self, close: Callable[[], None], flush: Callable[[], None] | None) -> None:
        self._close = close
        self._flush = flush

    def enlist(self) -> None:
        """Put it on the list; whoever holds it can cancel it, even if interrupted in here."""
        _register_once()
        _sigterm.install()
        _handles.append(self)

    def cancel(self) -> None:
        """The recording is closed: do nothing at the end; a second call does nothing."""
        if self in _handles:
            _handles.remove(self)
        if not _handles:
            _sigterm.remove()

    def close(self) -> None:
        """Close the recording; a fault of ours is printed, it must not change the exit status."""
        self._guarded(self._close)

    def flush(self) -> None:
        """Write what there is and go on; a recording that cannot be flushed is closed."""
        self._guarded(self._flush or self._close)

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as fault:
            say(f"trainscope: closing at the end failed: {fault!r}")

    def __enter__(self) -> Handle:
        _sigterm.hold(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        held = _sigterm.release(self)
        if kind is None:  # else it was interrupted half way: the end of the program does the rest
            self.cancel()
        if held:
            _sigterm.again()


_handles: list[Handle] = []
_registered = False


def at_end(close: Callable[[], None], *, flush: Callable[[], None] | None = None) -> Handle:
    """Call ``close`` when the interpreter exits or SIGTERM comes, unless cancelled before.

    At exit it runs before daemon threads stop and before other exit handlers, so that background
    threads and wandb are still there; with other threads still working, after these have ended.
    On SIGTERM the recording is closed and the process dies by SIGTERM as it would have; where the
    program has a handler of its own, ``flush`` runs (``close`` without one), then that handler,
    and what it does decides. An ignored SIGTERM stays ignored. A forked child forgets all of it.
    """
    handle = Handle(close, flush)
    handle.enlist()
    return handle


def _register_once() -> None:
    global _registered
    if _registered:
        return
    _registered = True
    try:
        threading._register_atexit(_threads_end)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # a private name; or the interpreter is already ending
        atexit.register(_close_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)


def _threads_end() -> None:
    """The main thread is done: close now, unless another thread goes on and may be the loop."""
    main = threading.main_thread()
    if any(t is not main and not t.daemon and t.is_alive() for t in threading.enumerate()):
        # registered last, it runs first: before wandb ends its service
        atexit.register(_close_all)
    else:
        _close_all()


def _close_all() -> None:
    for handle in tuple(_handles):
        handle.close()
        handle.cancel()


def _flush_all() -> None:
    for handle in tuple(_handles):
        handle.flush()


def _forget() -> None:
    _handles.clear()
    _sigterm.remove()


_sigterm = Sigterm(_close_all, _flush_all)
