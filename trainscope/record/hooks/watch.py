"""Who is told when a wrapped call begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trainscope.record.hooks.patch import hide_from_dynamo

__all__ = ["Several", "Watched", "Watcher"]


class Watcher(Protocol):
    """Told of calls; neither method ever raises an ``Exception``."""

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """A token for ``end``, or None when this call is none of the watcher's business."""

    def end(self, token: Any) -> None:
        """Close what ``begin`` opened, whether the call returned or raised."""


class Several:
    """Several watchers of one thing, as when two Scopes wrap one model."""

    __slots__ = ("watchers",)

    def __init__(self, watchers: tuple[Watcher, ...]) -> None:
        self.watchers = watchers

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The pairs of watcher and token that opened something, or None when none did."""
        begun = [(watcher, watcher.begin(target, args)) for watcher in self.watchers]
        return [pair for pair in begun if pair[1] is not None] or None

    def end(self, token: Any) -> None:
        """End each pair in reverse order."""
        for watcher, inner in reversed(token):
            watcher.end(inner)


class Watched:
    """The watchers of one thing; ``watcher`` stands for all of them, None when there is none."""

    __slots__ = ("watcher", "watchers")

    def __init__(self) -> None:
        self.watchers: tuple[Watcher, ...] = ()
        self.watcher: Watcher | None = None

    def add(self, watcher: Watcher) -> None:
        """Tell ``watcher`` too."""
        # they run beneath compiled code and are given its tensors: dynamo would compile them
        for cls in (Several, *type(watcher).__mro__):
            names = vars(cls).keys() & {"begin", "end"}
            hide_from_dynamo(*(vars(cls)[name] for name in names))
        self._set((*self.watchers, watcher))

    def discard(self, watchers: frozenset[Watcher]) -> bool:
        """Tell these no more; whether any was told so far."""
        left = tuple(each for each in self.watchers if each not in watchers)
        told = len(left) < len(self.watchers)
        self._set(left)
        return told

    def _set(self, watchers: tuple[Watcher, ...]) -> None:
        self.watchers = watchers
        if len(watchers) < 2:
            self.watcher = watchers[0] if watchers else None
        else:
            self.watcher = Several(watchers)
