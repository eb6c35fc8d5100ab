"""Replaced attributes, and how to put back exactly what was there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Patches"]

_ABSENT: Any = object()


@dataclass(eq=False, slots=True)
class _Replaced:
    """One attribute: what its owner itself held before, if anything, and what it got."""

    owner: Any
    name: str
    before: Any
    ours: Any


_all: list[_Replaced] = []
"""Of every `Patches`: a live detector and a dry one may lie above one another."""


class Patches:
    """Attributes replaced on modules and classes; `undo` restores them, inherited ones too."""

    def __init__(self) -> None:
        self._done: list[_Replaced] = []
        self._foreign: list[str] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` and remember what ``owner`` itself held, if anything."""
        replaced = _Replaced(owner, name, vars(owner).get(name, _ABSENT), value)
        self._done.append(replaced)
        _all.append(replaced)
        setattr(owner, name, value)

    def undo(self) -> tuple[str, ...]:
        """Restore in reverse order; return the names that someone else has replaced since.

        Those are left as they are: what wraps ours keeps calling ours, which passes through, or,
        of a method of Tensor, torch's own. One of trainscope's above it restores, in its turn,
        what was beneath ours. Once interrupted, it goes on where it was when called again.
        """
        while self._done:
            last = self._done[-1]
            now = vars(last.owner).get(last.name, _ABSENT)
            if now is last.ours:
                if last.before is _ABSENT:
                    delattr(last.owner, last.name)
                else:
                    setattr(last.owner, last.name, last.before)
            elif now is not last.before:
                above = [each for each in _all if each.before is last.ours]
                for each in above:
                    each.before = last.before
                if not above:
                    self._foreign.append(f"{last.owner.__name__}.{last.name}")
            if last in _all:
                _all.remove(last)
            self._done.pop()
        foreign, self._foreign = tuple(self._foreign), []
        return foreign
