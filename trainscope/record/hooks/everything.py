"""Every model and every optimizer of a program, for ``trainscope run``."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.compiler import is_dynamo_compiling

from trainscope.record.hooks.patch import HeldPatch, hide_from_dynamo
from trainscope.record.hooks.ranges import LoopRanges
from trainscope.record.hooks.watch import Watched, Watcher

__all__ = ["EVERY_MODEL", "NEW_OPTIMIZERS", "EveryModel", "NewOptimizers", "living_optimizers"]


class OutermostWatcher(Watcher, Protocol):
    """One to whom a module's call inside a forward is nothing."""

    ranges: LoopRanges


class EveryModel(Watched):
    """``__call__`` of ``torch.nn.Module`` itself, patched while anyone watches."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = HeldPatch("torch.nn.Module.__call__")
        self.only: LoopRanges | None = None
        """The ranges of the only watcher; None where there are several."""

    def watch(self, watcher: OutermostWatcher) -> None:
        """Tell ``watcher`` of each call of any module that is in no other's."""
        self.only = None if self.watchers else watcher.ranges
        self.add(watcher)
        module = torch.nn.Module
        self._patch.put(module, "__call__", lambda: _wrapped_call(self, vars(module)["__call__"]))

    def unwatch(self, watcher: OutermostWatcher) -> tuple[str, ...]:
        """Forget ``watcher`` and unpatch when none is left; in words what must stay."""
        self.only = None
        self.discard(frozenset([watcher]))
        return () if self.watchers else self._patch.take_out()


def _wrapped_call(watched: EveryModel, own: Any) -> Any:
    def call_any(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return own(self, *args, **kwargs)
        only = watched.only
        if only is not None and only.in_forward:  # most calls: of a module inside another
            return own(self, *args, **kwargs)
        watcher = watched.watcher
        token = None if watcher is None else watcher.begin(self, args)
        if watcher is None or token is None:
            return own(self, *args, **kwargs)
        try:
            return own(self, *args, **kwargs)
        finally:
            watcher.end(token)

    hide_from_dynamo(call_any)
    return functools.wraps(own)(call_any)


class NewOptimizers:
    """Tells of every optimizer when it is made, copied or unpickled."""

    _NAME = "_patch_step_function"  # torch calls it at the end of __init__ and of __setstate__

    def __init__(self) -> None:
        self._told: list[Callable[[torch.optim.Optimizer], None]] = []
        self._patch = HeldPatch(f"torch.optim.Optimizer.{self._NAME}")

    def tell(self, added: Callable[[torch.optim.Optimizer], None]) -> None:
        """Call ``added`` with each new optimizer."""
        self._told.append(added)
        optimizer = torch.optim.Optimizer
        self._patch.put(optimizer, self._NAME, lambda: self._wrapped(vars(optimizer)[self._NAME]))

    def forget(self, added: Callable[[torch.optim.Optimizer], None]) -> tuple[str, ...]:
        """Call ``added`` no more and unpatch when none is left; in words what must stay."""
        if added in self._told:
            self._told.remove(added)
        return () if self._told else self._patch.take_out()

    def _wrapped(self, prepare: Any) -> Any:
        @functools.wraps(prepare)
        def prepare_and_tell(optimizer: torch.optim.Optimizer) -> None:
            prepare(optimizer)
            for added in self._told:
                added(optimizer)

        return prepare_and_tell


def living_optimizers() -> list[torch.optim.Optimizer]:
    """Those made before; a walk over every object, so for once and not for a loop."""
    # isinstance would ask weak proxies and lazy modules for a __class__ that they may not have
    return [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer)]


EVERY_MODEL = EveryModel()
NEW_OPTIMIZERS = NewOptimizers()
