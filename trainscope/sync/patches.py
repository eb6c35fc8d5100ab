"""Replaced attributes, and how to put back exactly what was there."""

from __future__ import annotations

from typing import Any

__all__ = ["Patches"]

_ABSENT: Any = object()


class Patches:
    """Attributes replaced on modules and classes; `undo` restores them, inherited ones too."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` and remember what ``owner`` itself held, if anything."""
        self._done.append((owner, name, vars(owner).get(name, _ABSENT), value))
        setattr(owner, name, value)

    def undo(self) -> tuple[str, ...]:
        """Restore in reverse order; return the names that someone else has replaced since.

        Those are left as they are: what wraps ours keeps calling ours, which passes through.
        """
        foreign = []
        for owner, name, before, ours in reversed(self._done):
            if vars(owner).get(name, _ABSENT) is not ours:
                foreign.append(f"{owner.__name__}.{name}")
            elif before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._done.clear()
        return tuple(foreign)
