"""What opens a range at calls of modules that were not wrapped by name."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from trainscope.record.hooks.ranges import LoopRanges, NamedRange
from trainscope.record.hooks.watchers import ForwardWatcher

__all__ = ["EveryModelWatcher", "ModuleWatcher"]


class EveryModelWatcher(ForwardWatcher):
    """The outermost call of any module at all.

    A module with no parameter, such as a metric or an image transform, counts only when it is
    given something to differentiate, as a loss is; and nothing counts while data is fetched.
    """

    __slots__ = ("_trainable",)

    def __init__(self, ranges: LoopRanges, label: str) -> None:
        super().__init__(ranges, label)
        self._trainable: dict[int, weakref.ref[torch.nn.Module]] = {}
        """Modules that were found to have a parameter, by their ids: looking for one takes long."""

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """As for a wrapped model, for those modules that take part in training."""
        ranges = self.ranges
        if ranges.in_forward or ranges.in_fetch or ranges.elsewhere():
            return None
        try:
            known = self._trainable.get(id(target))
            takes_part = known is not None and known() is target
            if not takes_part:
                takes_part = self._has_part(target, args)
        except Exception as error:
            ranges.fail(error)
            return None
        if not takes_part or ranges.loop.phase == "data":
            return None
        return ForwardWatcher.begin(self, target, args)

    def _has_part(self, target: Any, args: Sequence[Any]) -> bool:
        if next(target.parameters(), None) is not None:
            key, trainable = id(target), self._trainable
            trainable[key] = weakref.ref(target, lambda _gone: trainable.pop(key, None))
            return True
        return any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)


class ModuleWatcher:
    """A submodule's call inside a forward of a wrapped model is a range named by its path."""

    __slots__ = ("_range", "name", "ranges", "running_in", "seen")

    def __init__(self, ranges: LoopRanges, name: str) -> None:
        self.ranges = ranges
        self.name = name
        self._range: NamedRange | None = None  # a name that is never seen takes no number
        self.running_in = -1
        """The turn in which it runs."""
        self.seen = False

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The range's token; None outside a forward, and for a module that calls itself."""
        ranges = self.ranges
        if self.running_in == ranges.turn or not ranges.in_forward or ranges.elsewhere():
            return None
        try:
            if self._range is None:
                self._range = ranges.recorder.range(self.name)
            token = self._range.open()
        except Exception as error:
            ranges.fail(error)
            return None
        self.running_in = ranges.turn
        self.seen = True
        return token

    def end(self, token: Any) -> None:
        """Close the range."""
        self.running_in = -1
        try:
            if self._range is not None:
                self._range.close(token)
        except Exception as error:
            self.ranges.fail(error)
