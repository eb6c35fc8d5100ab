"""``step`` of an optimizer whose instance carries a ``step`` of its own.

A learning-rate scheduler made before ``wrap`` put it there, and it calls the class's function
directly, so a patch on the class would not be asked. ``Optimizer`` leaves such an attribute out of
its pickles and copies.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

from torch.compiler import is_dynamo_compiling

from trainscope.record.hooks.patch import hide_from_dynamo
from trainscope.record.hooks.watch import Watched

__all__ = ["InstancePatch"]


class InstancePatch:
    """A wrapper where an attribute of the instance was; keeps no instance alive."""

    def __init__(self, target: Any, name: str, watched: Watched) -> None:
        self._name = name
        self._before = vars(target)[name]
        self._replacement = _replacement(self._before, watched)
        self._target = weakref.ref(target)
        setattr(target, name, self._replacement)

    def remove(self) -> bool:
        """Put back what was there; False, changing nothing, when someone replaced ours since."""
        target = self._target()
        if target is None:
            return True
        if vars(target).get(self._name) is not self._replacement:
            return False
        setattr(target, self._name, self._before)
        return True


def _replacement(before: Any, watched: Watched) -> Any:
    """What kind of callable it was it stays: schedulers read ``step.__func__`` of a method."""
    if not isinstance(before, types.MethodType):
        return _wrapped(before, watched)
    return types.MethodType(_wrapped(before.__func__, watched), before.__self__)


def _wrapped(step: Any, watched: Watched) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return step(*args, **kwargs)
        watcher = watched.watcher
        token = None if watcher is None else watcher.begin(None, args)
        if watcher is None or token is None:
            return step(*args, **kwargs)
        try:
            return step(*args, **kwargs)
        finally:
            watcher.end(token)

    hide_from_dynamo(call)
    return functools.wraps(step)(call)
