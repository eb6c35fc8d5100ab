"""The seam between what sees waits (live probes, the dry run) and what counts them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from operator import methodcaller
from types import FrameType
from typing import Protocol

from trainscope.errors import SyncError

__all__ = ["NOT_FOR_USERS", "Observer", "Source"]

NOT_FOR_USERS = methodcaller("errisinstance", SyncError)
"""A module's ``__tracebackhide__``: pytest ends the traceback of a SyncError at the user's line."""


class Observer(Protocol):
    """What a source of waits reports to."""

    def _observe(
        self,
        kind: str,
        frame: FrameType | None,
        blocked_ns: int | None = None,
        internal: bool = False,
    ) -> None:
        """Take one wait.

        `kind`: a name of `KINDS`, or ``"race"``. `frame`: the innermost Python frame at the wait;
        our own frames and library frames are skipped from there outwards. `blocked_ns`: None when
        not timed. `internal`: one user call that makes many reads (`print`), given once.
        Raises `SyncError` where the user's settings forbid the wait; a source lets it through.
        """
        ...

    def h2d_range(self) -> AbstractContextManager[object] | None:
        """Return the range to enter around a copy to the device, or None when none is wanted."""
        ...

    def fail(self, fault: Exception) -> None:
        """Take everything out after a fault of trainscope's own."""
        ...


class Source(Protocol):
    """What sees waits between `start` and `stop`, and reports them to its observer."""

    def start(self) -> None:
        """Begin to report."""
        ...

    def stop(self) -> None:
        """Stop, and put back everything that was replaced."""
        ...

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """The waits and facts that this source has no way to know, in words."""
        ...
