"""Rows of ranges of which it is not known yet in which step they are, if in any."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import chain

from trainscope.trace.ranges import ROW_FIELDS, Row

__all__ = ["FIELDS", "MAX_KEPT", "UnsureRows"]

FIELDS = len(ROW_FIELDS)
"""Numbers of a row. Where many rows wait they are numbers one after the other, not tuples: those
would have Python's garbage collector come round in the user's loop."""

MAX_KEPT = 64
"""More than the fetches in the first turn of a loop, also of one with several loaders."""


class UnsureRows:
    """What is taken away from ``numbers``, the recorder's rows, is only what is known.

    All but ``take`` is called on the loop's thread. Every change of ``numbers`` is one call, which
    no other thread sees half of.
    """

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers
        self._kept: deque[Row] = deque()
        self.step: int | None = None
        """The open step, while it may yet be dropped: its rows would then be in none."""

    def take(self) -> list[int]:
        """Take away the rows that are known; safe on another thread."""
        numbers = self._numbers
        end = len(numbers)  # first: what is added after it may be of a step that begins just now
        step = self.step
        if step is not None:
            steps = numbers[:end:FIELDS]
            if step in steps:
                end = steps.index(step) * FIELDS
        taken = numbers[:end]
        del numbers[: len(taken)]
        return taken

    def end_step(self, kept: bool) -> None:
        """The step that was not sure has ended; where it is not ``kept``, its rows are in none."""
        step = self.step
        if not kept:
            numbers = self._numbers
            at = -FIELDS
            # none but the open step's is at the end, and those are not taken away
            with suppress(IndexError):  # all that was known has just been taken away
                while numbers[at] == step:
                    numbers[at] = -1
                    at -= FIELDS
        self.step = None

    def keep(self, row: Row) -> None:
        """A row of no step, which may be the next one's; of too many the oldest is not."""
        self._kept.append(row)
        if len(self._kept) > MAX_KEPT:
            self._numbers.extend(self._kept.popleft())

    def give(self, step: int, start_ns: int, *, first_name_id: int) -> None:
        """Of those kept, what began from ``start_ns`` on is the step's, the rest in none.

        The first of the step's is named ``first_name_id``: it was taken for an evaluation's where
        the model was still in eval mode.
        """
        name_id: int | None = first_name_id
        while self._kept:
            row = self._kept.popleft()
            if row[3] >= start_ns:
                name = row[1] if name_id is None else name_id
                row, name_id = (step, name, 1, *row[3:]), None
            self._numbers.extend(row)

    def give_up(self) -> None:
        """There will be no more steps: what is kept is in none."""
        self._numbers.extend(chain.from_iterable(self._kept))
        self._kept.clear()
        self.step = None

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        self._kept.clear()
        self.step = None
