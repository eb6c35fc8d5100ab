"""Replace attributes for the length of a dry run, and put each back exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["Patches"]

_ABSENT = object()


class Patches:
    """Replaced attributes, in the order they were replaced."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, object, object]] = []

    def install(self, owner: Any, name: str, replacement: object) -> None:
        """Set ``owner.name``; what is in the owner's own namespace now comes back later."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, replacement)
        self._replaced.append((owner, name, before, replacement))

    def functions(self) -> Iterator[tuple[object, object]]:
        """Give each replaced function with its replacement."""
        for _, _, _, replacement in self._replaced:
            original = getattr(replacement, "__wrapped__", None)
            if original is not None:
                yield original, replacement

    def restore(self) -> None:
        """Put everything back; what someone else replaced after us stays theirs."""
        while self._replaced:
            owner, name, before, replacement = self._replaced.pop()
            if vars(owner).get(name, _ABSENT) is not replacement:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
