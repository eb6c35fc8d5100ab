"""Every backward, through the one function with which torch enters its autograd engine."""

from __future__ import annotations

import functools
from typing import Any

import torch.autograd
import torch.autograd.graph
from torch.compiler import is_dynamo_compiling

from trainscope.record.hooks.patch import Patch, hide_from_dynamo, stays_beneath
from trainscope.record.hooks.watch import Watched, Watcher

__all__ = ["ENGINE"]

_NAME = "_engine_run_backward"


class Engine(Watched):
    """What ``Tensor.backward``, ``torch.autograd.backward`` and ``grad`` look up at each call.

    So they are seen however they were imported. Watchers are told with ``target`` saying whether
    gradients are accumulated into ``.grad``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._patches: list[Patch] = []

    def watch(self, watcher: Watcher) -> bool:
        """Tell ``watcher`` of each backward; False when this torch has no such function."""
        if not hasattr(torch.autograd.graph, _NAME) or not hasattr(torch.autograd, _NAME):
            return False
        self.add(watcher)
        if not self._patches or not all(patch.on_top for patch in self._patches):
            # both names must stay one function: torch.compiler saves one and restores both
            wrapper = _wrapped(self, getattr(torch.autograd.graph, _NAME))
            owners = (torch.autograd.graph, torch.autograd)
            self._patches = [Patch(owner, _NAME, wrapper) for owner in owners]
        return True

    def unwatch(self, watcher: Watcher) -> tuple[str, ...]:
        """Forget ``watcher`` and unpatch when none is left; in words what must stay."""
        self.discard(frozenset([watcher]))
        if self.watchers or not self._patches:
            return ()
        buried = [patch for patch in self._patches if not patch.remove()]
        self._patches = []
        return tuple(stays_beneath(f"{patch.owner.__name__}.{_NAME}") for patch in buried)


def _wrapped(engine: Engine, run: Any) -> Any:
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return run(*args, **kwargs)
        watcher = engine.watcher
        if watcher is None:
            return run(*args, **kwargs)
        token = watcher.begin(kwargs.get("accumulate_grad", True), ())
        if token is None:
            return run(*args, **kwargs)
        try:
            return run(*args, **kwargs)
        finally:
            watcher.end(token)

    hide_from_dynamo(run_backward)
    return functools.wraps(run)(run_backward)


ENGINE = Engine()
