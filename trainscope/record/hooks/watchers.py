"""What opens a range: a model's call, a submodule's, an optimizer's step, a backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import is_grad_enabled

from trainscope.record.hooks.ranges import LoopRanges

__all__ = ["BackwardWatcher", "EveryModelWatcher", "ForwardWatcher", "ModuleWatcher", "StepWatcher"]


class ForwardWatcher:
    """A wrapped model's outermost call is the range ``forward``, or ``evaluation``.

    It is ``evaluation`` when the model is in eval mode or gradients are off, so that a validation
    pass inside a step is not mixed with the training forward; a frozen teacher in eval mode counts
    as evaluation too. Recomputation under activation checkpointing opens no range.
    """

    __slots__ = ("calls", "label", "ranges", "seen_at", "seen_step")

    def __init__(self, ranges: LoopRanges, label: str) -> None:
        self.ranges = ranges
        self.label = label
        self.calls = 0
        self.seen_at = 0
        """Backward steps of the loop when it was last called."""
        self.seen_step = -1

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The recorder's token, and what ``evaluating`` was; None inside another forward."""
        ranges = self.ranges
        if ranges.in_forward or ranges.elsewhere():
            return None
        loop = ranges.loop
        was_evaluating = loop.evaluating
        try:
            trains = getattr(target, "training", True)
            loop.eval_mode = not trains
            if trains and is_grad_enabled():
                token = ranges.open("forward", "forward")
                ranges.recorder.forwards += 1
            else:
                token = ranges.open("evaluation", "evaluation")
                loop.evaluating = True
            self.calls += 1
            self.seen_at = ranges.backward_steps
            self.seen_step = ranges.recorder.step
            ranges.in_forward = True
        except Exception as error:
            loop.evaluating = was_evaluating
            ranges.fail(error)
            return None
        return token, was_evaluating

    def end(self, token: Any) -> None:
        """Close the range and restore ``evaluating``."""
        ranges = self.ranges
        ranges.in_forward = False
        ranges.loop.evaluating = token[1]
        ranges.close(token[0])


class EveryModelWatcher(ForwardWatcher):
    """The outermost call of any module at all.

    A module with no parameter, such as a metric or an image transform, counts only when it is
    given something to differentiate, as a loss is; and nothing counts while data is fetched.
    """

    __slots__ = ()

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """As for a wrapped model, for those modules that take part in training."""
        ranges = self.ranges
        if ranges.in_forward or ranges.in_fetch or ranges.elsewhere():
            return None
        try:
            takes_part = next(target.parameters(), None) is not None or any(
                isinstance(each, torch.Tensor) and each.requires_grad for each in args
            )
        except Exception as error:
            ranges.fail(error)
            return None
        if not takes_part or ranges.loop.phase == "data":
            return None
        return ForwardWatcher.begin(self, target, args)


class ModuleWatcher:
    """A submodule's call inside a forward of a wrapped model is a range named by its path."""

    __slots__ = ("name", "ranges", "running_in", "seen")

    def __init__(self, ranges: LoopRanges, name: str) -> None:
        self.ranges = ranges
        self.name = name
        self.running_in = -1
        """The turn in which it runs."""
        self.seen = False

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The recorder's token; None outside a forward, and for a module that calls itself."""
        ranges = self.ranges
        if self.running_in == ranges.turn or not ranges.in_forward or ranges.elsewhere():
            return None
        try:
            token = ranges.recorder.open(self.name)
        except Exception as error:
            ranges.fail(error)
            return None
        self.running_in = ranges.turn
        self.seen = True
        return token

    def end(self, token: Any) -> None:
        """Close the range."""
        self.running_in = -1
        self.ranges.close(token)


class StepWatcher:
    """An optimizer's outermost ``step`` is the range ``optimizer``, any inside it part of that."""

    __slots__ = ("calls", "label", "ranges", "seen_at", "seen_step")

    def __init__(self, ranges: LoopRanges, label: str) -> None:
        self.ranges = ranges
        self.label = label
        self.calls = 0
        self.seen_at = 0
        self.seen_step = -1

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The recorder's token; None inside another optimizer's step."""
        ranges = self.ranges
        if ranges.elsewhere():
            return None
        try:
            token = None
            if not ranges.in_optimizer:
                token = ranges.open("optimizer", "optimizer")
                ranges.recorder.optimizer_steps += 1
                ranges.loop.eval_mode = False
                ranges.in_optimizer = True
            self.calls += 1
            self.seen_at = ranges.backward_steps
            self.seen_step = ranges.recorder.step
        except Exception as error:
            ranges.fail(error)
            return None
        return token

    def end(self, token: Any) -> None:
        """Close the range."""
        self.ranges.in_optimizer = False
        self.ranges.close(token)


class BackwardWatcher:
    """The outermost run of the autograd engine is the range ``backward``.

    ``target`` says whether it accumulates into ``.grad``: only that is a training backward and
    counted; ``torch.autograd.grad`` is not.
    """

    __slots__ = ("ranges",)

    def __init__(self, ranges: LoopRanges) -> None:
        self.ranges = ranges

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The recorder's token; None for a backward inside another."""
        ranges = self.ranges
        if ranges.in_backward or ranges.elsewhere():
            return None
        try:
            token = ranges.open("backward", "backward" if target else "grad")
            if target:
                ranges.count_backward()
                ranges.loop.eval_mode = False
            ranges.in_backward = True
        except Exception as error:
            ranges.fail(error)
            return None
        return token

    def end(self, token: Any) -> None:
        """Close the range."""
        self.ranges.in_backward = False
        self.ranges.close(token)
