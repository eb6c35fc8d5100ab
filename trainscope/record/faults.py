"""What a recording says of its own faults: each thing once, and never to the loop's harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainscope.notice import warn

__all__ = ["Faults"]


class Faults:
    """Warnings of the recording in ``path``; ``end`` ends it."""

    def __init__(self, path: Path, end: Callable[[], None]) -> None:
        self._path = path
        self._end = end
        self._told: set[str] = set()

    def give_up(self, fault: Exception) -> None:
        """A fault of ours ends the recording with one warning; the training goes on."""
        warn(
            f"trainscope stopped recording because of a fault of its own "
            f"({type(fault).__name__}: {fault}); the training goes on. "
            f"What was recorded is in {self._path}",
            stacklevel=4,
        )
        self._end()

    def not_saved(self, fault: Exception) -> None:
        """A file could not be written."""
        self.tell_once(
            "not saved",
            f"trainscope could not write all of the recording to {self._path} "
            f"({type(fault).__name__}: {fault}); the training goes on",
        )

    def not_logged(self, fault: Exception) -> None:
        """A value could not be taken: one that cannot even be asked, say."""
        self.tell_once(
            "not logged",
            f"trainscope could not log what a call gave it ({type(fault).__name__}: {fault}); "
            "such calls are left out, the training goes on",
            stacklevel=4,
        )

    def logged_too_late(self) -> None:
        """Values came when the recording was closed."""
        self.tell_once(
            "closed",
            "scope.log was called after scope.close(): the values are not logged",
            stacklevel=4,
        )

    def logged_in_child(self) -> None:
        """Values came in a forked process, which the recording is not of."""
        self.tell_once(
            "forked",
            "scope.log was called in a forked process: the values are not logged; "
            "give them to the process that made the Scope",
            stacklevel=4,
        )

    def tell_once(self, what: str, text: str, stacklevel: int = 2) -> None:
        """Warn, unless ``what`` has been told."""
        if what not in self._told:
            self._told.add(what)
            warn(text, stacklevel=stacklevel + 1)
