"""The step that is open, and the calls that begin, end and drop it."""

from __future__ import annotations

from collections.abc import Callable

from trainscope.record.inference.loops import LoopTurns

__all__ = ["OpenStep"]


class OpenStep:
    """Whose turn the open step is, if any is open; calls are those of ``StepInference``."""

    def __init__(
        self,
        *,
        begin: Callable[[], None],
        end: Callable[[], None],
        end_last: Callable[[], None],
        drop: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._end = end
        self._end_last = end_last
        self._drop = drop
        self.owner: LoopTurns | None = None
        """The loop whose turn it is."""
        self.trained = False
        self.since = 0
        """How many events there had been when it began."""

    def begin(self, owner: LoopTurns, events: int) -> None:
        """Begin a turn of this loop, after so many events."""
        self.owner, self.since = owner, events
        self._begin()

    def close(self, *, left: bool, counts: bool) -> None:
        """End it, if there is one, as if it had not begun where it does not count.

        ``left``: the program has left its loop, and that may be long ago.
        """
        owner, self.owner, self.trained = self.owner, None, False
        if owner is None:
            return
        if not counts:
            self._drop()
        elif left:
            self._end_last()
        else:
            self._end()
