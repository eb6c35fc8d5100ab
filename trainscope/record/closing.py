"""Stages that are each done once, from wherever and however often they are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident

__all__ = ["Closing"]

_POLL_S = 0.001


class Closing:
    """Does ``stages`` in order; one that fails is tried once more, and then the next ones are done.

    What failed twice is left for the next call, which may come with more memory or a shallower
    stack; but what the disk refuses twice is given up. So a stage that takes things out must go on
    where it was.
    """

    def __init__(self, stages: Sequence[Callable[[], None]]) -> None:
        self._left = list(reversed(stages))
        self._thread: int | None = None
        self.closed = False
        """Whether nothing is left to do."""

    def run(self, guard: AbstractContextManager[object]) -> list[Exception]:
        """Do what is left, under ``guard``; return what went wrong.

        A call on another thread waits for the one that is under way; one in the middle of it, by a
        signal handler, does nothing. After a ``KeyboardInterrupt`` the next call does what is left,
        beginning with the stage that was interrupted.
        """
        while self._thread not in (None, get_ident()):
            time.sleep(_POLL_S)
        if self._thread is not None or self.closed:
            return []
        self._thread = get_ident()
        try:
            with guard:
                faults = self._do_what_is_left()
            self.closed = not self._left
            return faults
        finally:
            self._thread = None

    def forget(self) -> None:
        """Do nothing more, in a forked child: the stages are its parent's."""
        self._left = []
        self.closed = True
        self._thread = None

    def _do_what_is_left(self) -> list[Exception]:
        left = self._left
        faults: list[Exception] = []
        failed: list[Callable[[], None]] = []
        while left:
            for attempt in range(2):
                try:
                    left[-1]()
                    break
                except Exception as fault:
                    faults.append(fault)
                    if attempt and not isinstance(fault, OSError):
                        failed.append(left[-1])
            left.pop()
        left.extend(reversed(failed))
        return faults
