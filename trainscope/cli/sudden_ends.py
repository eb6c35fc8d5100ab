"""Ends of a program that its exit handlers hear nothing of: ``os._exit``, ``os.execv``."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from trainscope.record.hooks.patch import Patch

__all__ = ["SuddenEnds"]

_CALLS = ("_exit", "execv", "execve")  # the other forms of exec come down to these two


class SuddenEnds:
    """Calls ``before`` with the call's name, such as ``os._exit``, before this process ends so.

    A forked child ends without it, as those of multiprocessing all do.
    """

    def __init__(self, before: Callable[[str], None]) -> None:
        self._before = before
        self._pid = os.getpid()
        self._on = True
        self._patches = [Patch(os, name, self._told(getattr(os, name))) for name in _CALLS]

    def forget(self) -> None:
        """Put the calls back; a second time does nothing."""
        self._on = False
        while self._patches:
            self._patches.pop().remove()

    def _told(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def end(*args: Any, **kwargs: Any) -> Any:
            if self._on and os.getpid() == self._pid:
                self._before(f"os.{original.__name__}")
            return original(*args, **kwargs)

        return end
