"""Rows of ranges of which it is not known yet in which step they are, if in any."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

__all__ = ["MAX_KEPT", "Row", "UnsureRows"]

Row = tuple[int, int, int, int, int]
"""(step, name_id, depth, start_ns, end_ns); depth 0 is the step itself, step -1 is outside."""

MAX_KEPT = 64
"""More than the fetches in the first turn of a loop, also of one with several loaders."""


class UnsureRows:
    """What is taken away from ``rows``, the recorder's, is only what is known.

    All but ``take`` is called on the loop's thread.
    """

    def __init__(self, rows: deque[Row]) -> None:
        self._rows = rows
        self._kept: deque[Row] = deque()
        self.step: int | None = None
        """The open step, while it may yet be dropped: its rows would then be in none."""

    def take(self) -> list[Row]:
        """Take away the rows that are known; safe on another thread."""
        rows = self._rows
        taken: list[Row] = []
        with suppress(IndexError):  # empty, or the loop has just thrown away what was too much
            while rows[0][0] != self.step:
                taken.append(rows.popleft())
        return taken

    def end_step(self, kept: bool) -> None:
        """The open step has ended; where it is not ``kept``, its rows are in no step."""
        step = self.step
        if step is not None and not kept:
            rows = self._rows
            own: list[Row] = []
            # none but the open step's is at the end, and those are not taken away
            with suppress(IndexError):  # all that was known has just been taken away
                while rows[-1][0] == step:
                    own.append(rows.pop())
            rows.extend((-1, *row[1:]) for row in reversed(own))
        self.step = None

    def keep(self, row: Row) -> None:
        """A row of no step, which may be the next one's; of too many the oldest is not."""
        self._kept.append(row)
        if len(self._kept) > MAX_KEPT:
            self._rows.append(self._kept.popleft())

    def give(self, step: int, start_ns: int) -> None:
        """Of those kept, what began from ``start_ns`` on is the step's, the rest in none."""
        while self._kept:
            row = self._kept.popleft()
            self._rows.append((step, row[1], 1, *row[3:]) if row[3] >= start_ns else row)

    def give_up(self) -> None:
        """There will be no more steps: what is kept is in none."""
        self._rows.extend(self._kept)
        self._kept.clear()
        self.step = None

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        self._kept.clear()
        self.step = None
