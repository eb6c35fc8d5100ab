"""Replaced attributes, and how to put back exactly what was there."""

from __future__ import annotations

from typing import Any

__all__ = ["Patches"]

_ABSENT: Any = object()


class Patches:
    """Attributes replaced on modules and classes; `undo` restores them, inherited ones too."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []
        self._foreign: list[str] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` and remember what ``owner`` itself held, if anything."""
        self._done.append((owner, name, vars(owner).get(name, _ABSENT), value))
        setattr(owner, name, value)

    def undo(self) -> tuple[str, ...]:
        """Restore in reverse order; return the names that someone else has replaced since.

        Those are left as they are: what wraps ours keeps calling ours, which passes through. Once
        interrupted, it goes on where it was when called again.
        """
        while self._done:
            owner, name, before, ours = self._done[-1]
            now = vars(owner).get(name, _ABSENT)
            if now is not ours:
                if now is not before:
                    self._foreign.append(f"{owner.__name__}.{name}")
            elif before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
            self._done.pop()
        foreign, self._foreign = tuple(self._foreign), []
        return foreign
