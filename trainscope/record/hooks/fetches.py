"""Each batch that a ``torch.utils.data.DataLoader`` is asked for, for ``trainscope run``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainscope.record.hooks.patch import HeldPatch, hide_from_dynamo
from trainscope.record.hooks.ranges import LoopRanges
from trainscope.record.hooks.watch import Watched

__all__ = ["FETCHES", "FetchWatcher", "Fetches"]


class FetchWatcher:
    """The outermost fetch of a batch is the range ``data``, or ``evaluation``.

    A fetch that begins a turn of the training loop is that turn's ``data``. Any other is
    ``evaluation`` where gradients are off or a model in eval mode ran last. One outside a step is
    kept for the first step of a loop, which is known to be one only later.
    """

    __slots__ = ("ranges",)

    def __init__(self, ranges: LoopRanges) -> None:
        self.ranges = ranges

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The recorder's token, and what ``evaluating`` was; None inside another call of ours."""
        ranges = self.ranges
        if ranges.in_fetch or ranges.in_forward or ranges.elsewhere():
            return None
        loop = ranges.loop
        was_evaluating = loop.evaluating
        try:
            on_event = ranges.recorder.on_event
            first = getattr(target, "_num_yielded", 0) == 0
            begins = on_event is not None and on_event("first data" if first else "data")
            evaluates = not begins and (loop.eval_mode or not torch.is_grad_enabled())
            token = ranges.recorder.open("evaluation" if evaluates else "data")
            loop.evaluating = evaluates
            ranges.in_fetch = True
        except Exception as error:
            loop.evaluating = was_evaluating
            ranges.fail(error)
            return None
        return token, was_evaluating

    def end(self, token: Any) -> None:
        """Close the range and restore ``evaluating``."""
        ranges = self.ranges
        ranges.in_fetch = False
        ranges.loop.evaluating = token[1]
        try:
            ranges.recorder.close_aside(token[0])
        except Exception as error:
            ranges.fail(error)

    def found_none(self, token: Any) -> None:
        """The same where there was no batch: no turn has begun."""
        ranges = self.ranges
        try:
            if ranges.recorder.on_event is not None:
                ranges.recorder.on_event("no data")
        except Exception as error:
            ranges.fail(error)
        self.end(token)


class Fetches(Watched):
    """``__next__`` of what goes through a ``DataLoader``, patched while anyone watches."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = HeldPatch("the __next__ of a DataLoader's iterator")

    def watch(self, watcher: FetchWatcher) -> None:
        """Tell ``watcher`` of each batch that any loader is asked for."""
        self.add(watcher)
        hide_from_dynamo(FetchWatcher.found_none)
        iterator = _BaseDataLoaderIter
        self._patch.put(
            iterator, "__next__", lambda: _wrapped_next(self, vars(iterator)["__next__"])
        )

    def unwatch(self, watcher: FetchWatcher) -> tuple[str, ...]:
        """Forget ``watcher`` and unpatch when none is left; in words what must stay."""
        self.discard(frozenset([watcher]))
        return () if self.watchers else self._patch.take_out()


def _wrapped_next(watched: Watched, own: Any) -> Any:
    def fetch(self: Any) -> Any:
        watchers = () if is_dynamo_compiling() else watched.watchers
        begun = [(watcher, watcher.begin(self, ())) for watcher in watchers]
        end = "end"
        try:
            return own(self)
        except StopIteration:
            end = "found_none"
            raise
        finally:
            for watcher, token in reversed(begun):
                if token is not None:
                    getattr(watcher, end)(token)

    hide_from_dynamo(fetch)
    return functools.wraps(own)(fetch)


FETCHES = Fetches()
