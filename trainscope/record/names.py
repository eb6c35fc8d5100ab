"""The names of ranges: rows carry a number for each, and there is an end of them."""

from __future__ import annotations

__all__ = ["MAX_NAMES", "MAX_NAME_LENGTH", "OTHER_NAMES", "STEP_NAME", "RangeNames"]

STEP_NAME = "step"
MAX_NAMES = 1 << 14
"""A range named anew in each step, by its file say, is no phase: what comes after so many names
goes under one, and neither memory nor ``names.json`` grows with the run."""
OTHER_NAMES = "(other names)"
MAX_NAME_LENGTH = 200
"""A longer name is cut; what is left tells it apart as far as a report can show."""


class RangeNames:
    """Numbers names in the order in which they come; the step's own is the first."""

    __slots__ = ("_numbers", "listed")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {STEP_NAME: 0}
        self.listed = [STEP_NAME]
        """The names by their numbers; the newest may not be in it yet."""

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, name: str) -> int:
        """Return the number that rows carry for a name; safe on every thread."""
        numbers = self._numbers
        found = numbers.get(name)
        if found is None:
            if len(name) > MAX_NAME_LENGTH:
                name = f"{name[: MAX_NAME_LENGTH - 1]}…"
            if len(numbers) >= MAX_NAMES and name not in numbers:
                name = OTHER_NAMES
            found = numbers.setdefault(name, len(numbers))
        return found

    def so_far(self) -> list[str]:
        """Return all names by their numbers, as ``listed`` has them from now on."""
        self.listed = listed = list(self._numbers)
        return listed
