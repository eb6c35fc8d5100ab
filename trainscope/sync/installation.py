"""What is installed in the process, once, however many detectors and guards look on."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from types import FrameType
from typing import Protocol

from trainscope.notice import warn
from trainscope.sync import permits
from trainscope.sync.loop import LoopState
from trainscope.sync.messages import sync_error, warn_sync
from trainscope.sync.observer import NOT_FOR_USERS, Observer, Source
from trainscope.sync.own import is_own

__all__ = ["Bystander", "Installation", "Watcher"]

__tracebackhide__ = NOT_FOR_USERS


class Watcher(Protocol):
    """Who looks on: a detector, or a guard used without one."""

    loop: LoopState

    def take(
        self,
        kind: str,
        frame: FrameType | None,
        blocked_ns: int | None,
        internal: bool,
        allowed: str | None,
    ) -> BaseException | None:
        """Count one wait; return the error to raise at the user's line, or None."""
        ...

    def failed(self, fault: Exception) -> None:
        """Learn that a fault of trainscope's own has switched everything off."""
        ...


@contextmanager
def _each(*ranges: AbstractContextManager[object]) -> Iterator[None]:
    """Of two loops at once, one around the other, each has the copy in a range of its own."""
    with ExitStack() as entered:
        for each in ranges:
            entered.enter_context(each)
        yield


class Bystander:
    """A watcher that only keeps the source started: it takes nothing."""

    def __init__(self) -> None:
        self.loop = LoopState()

    def take(
        self,
        kind: str,
        frame: FrameType | None,
        blocked_ns: int | None,
        internal: bool,
        allowed: str | None,
    ) -> None:
        """Count nothing: the installation itself asks which block is in force."""

    def failed(self, fault: Exception) -> None:
        """Nothing to keep: the installation has warned."""


class Installation:
    """One source of waits, started for its first watcher and stopped after its last."""

    def __init__(self, make_source: Callable[[Observer], Source]) -> None:
        self._make_source = make_source
        self._lock = threading.RLock()
        self._watchers: tuple[Watcher, ...] = ()
        self.source: Source | None = None
        _all.add(self)

    def add(self, watcher: Watcher) -> None:
        """Let `watcher` look on; starts the source for the first one."""
        with self._lock:
            if self.source is None:
                source = self.source = self._make_source(self)
                try:
                    source.start()
                except BaseException:  # a fault, or Ctrl-C: nothing stays half installed
                    self._stop()
                    raise
            self._watchers = (*self._watchers, watcher)

    def remove(self, watcher: Watcher) -> None:
        """Take `watcher` out; stops the source after the last one."""
        with self._lock:
            self._watchers = tuple(other for other in self._watchers if other is not watcher)
            if not self._watchers:
                self._stop()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let the source, if it is started, go on while one watcher gives way to another.

        A dry run has seen what was moved to the device, and a new one would not know it.
        """
        if self.source is None:
            yield
            return
        bystander = Bystander()
        self.add(bystander)
        try:
            yield
        finally:
            self.remove(bystander)

    def _stop(self) -> None:
        source = self.source
        if source is None:
            return
        try:
            source.stop()
        except Exception:
            self.source = None
            source.stop()  # goes on where it was; what fails twice is told
        self.source = None  # not before: after an interrupt the next call goes on

    def _observe(
        self,
        kind: str,
        frame: FrameType | None,
        blocked_ns: int | None = None,
        internal: bool = False,
    ) -> None:
        """See `Observer`."""
        if is_own():
            return
        error: BaseException | None = None
        try:
            permit = permits.here() if kind != "race" else None
            allowed = permit.reason if permit is not None and permit.mode == "allow" else None
            for watcher in self._watchers:
                error = watcher.take(kind, frame, blocked_ns, internal, allowed) or error
            if permit is not None and permit.mode == "error":
                error = error or sync_error(kind, frame)
        except Exception as fault:
            self.fail(fault)
            return
        if permit is not None and permit.mode == "warn":
            warn_sync(kind, frame, permit.shown)  # may raise, under the user's own filters
        if error is not None:
            raise error

    def h2d_range(self) -> AbstractContextManager[object] | None:
        """See `Observer`."""
        found: AbstractContextManager[object] | None = None
        for watcher in self._watchers:
            if watcher.loop.h2d is not None and not is_own():
                other = watcher.loop.h2d_range(sys._getframe(1))
                if other is not None:
                    found = other if found is None else _each(found, other)
        return found

    def fail(self, fault: Exception) -> None:
        """Take everything out after a fault of our own, so that the training goes on."""
        with self._lock:
            watchers, self._watchers = self._watchers, ()
            with suppress(Exception):  # the fault that led here is the one to tell
                self._stop()
        for watcher in watchers:
            watcher.failed(fault)
        warn(
            f"trainscope stopped looking for syncs after a fault of its own: {fault!r}; "
            "the training goes on",
            stacklevel=3,
        )

    def _after_fork_in_child(self) -> None:
        """Leave a forked child (a DataLoader worker) as if nothing were installed."""
        self._lock = threading.RLock()
        self._watchers = ()
        self._stop()


_all: weakref.WeakSet[Installation] = weakref.WeakSet()


def _clear_child() -> None:
    for installation in list(_all):
        installation._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clear_child)
