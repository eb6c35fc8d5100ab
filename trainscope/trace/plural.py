"""Numbers with their words: ``1 event is``, ``2 events are``."""

from __future__ import annotations

__all__ = ["are", "count", "have"]


def count(number: int, one: str, many: str = "") -> str:
    """The number and what it counts, in the plural where it is not 1."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def have(number: int) -> str:
    """``has`` or ``have``."""
    return "has" if number == 1 else "have"


def are(number: int) -> str:
    """``is`` or ``are``."""
    return "is" if number == 1 else "are"
