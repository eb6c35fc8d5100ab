"""What opens the ranges of every step: a model's call, an optimizer's step, a backward.

Each asks by itself what ``LoopRanges.elsewhere`` asks: between two of our lines
the caches fill with torch's, and each further function is another trip to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any

from torch import is_grad_enabled

from trainscope.metrics.lanes import stream_is_capturing
from trainscope.record.hooks.ranges import LoopRanges, dispatch_modes, running_backward

__all__ = ["BackwardWatcher", "ForwardWatcher", "StepWatcher"]


class ForwardWatcher:
    """A wrapped model's outermost call is the range ``forward``, or ``evaluation``.

    It is ``evaluation`` when the model is in eval mode or gradients are off, so that a validation
    pass inside a step is not mixed with the training forward; a frozen teacher in eval mode counts
    as evaluation too. Recomputation under activation checkpointing opens no range.
    """

    __slots__ = (
        "_evaluation", "_forward", "first_at", "label", "ranges", "seen_at", "seen_step",
    )  # fmt: skip

    def __init__(self, ranges: LoopRanges, label: str) -> None:
        self.ranges = ranges
        self._forward = ranges.recorder.range("forward")
        self._evaluation = ranges.recorder.range("evaluation")
        self.label = label
        self.seen_at = -1
        """Backward steps of the loop when it was last called; -1: never."""
        self.first_at = -1
        """The same when it was first called."""
        self.seen_step = -1

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The range's token, and what ``evaluating`` was; None inside another forward."""
        ranges = self.ranges
        loop = ranges.loop
        if (
            ranges.in_forward
            or not ranges.active
            or get_ident() != loop.thread_id
            or running_backward() != -1
            or (dispatch_modes() and ranges.elsewhere())
        ):
            return None
        recorder = ranges.recorder
        was_evaluating = loop.evaluating
        try:
            in_train_mode = getattr(target, "training", True)
            loop.eval_mode = not in_train_mode
            trains = in_train_mode and is_grad_enabled()
            if recorder.on_event is not None:
                recorder.on_event("forward" if trains else "evaluation")
            if trains:
                token = self._forward.open()
                recorder.forwards += 1
            else:
                token = self._evaluation.open()
                loop.evaluating = True
            self.seen_at = ranges.backward_steps
            if self.first_at < 0:
                self.first_at = self.seen_at
            self.seen_step = recorder.step
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
        try:
            self._forward.close(token[0])  # whichever it was: the token says
        except Exception as error:
            ranges.fail(error)


class StepWatcher:
    """An optimizer's outermost ``step`` is the range ``optimizer``, any inside it part of that.

    One in a hook of a gradient, on whichever thread of autograd's, is part of the backward, which
    then counts as one optimizer step, be there an optimizer for each parameter.
    """

    __slots__ = ("_range", "first_at", "label", "ranges", "seen_at", "seen_step")

    def __init__(self, ranges: LoopRanges, label: str) -> None:
        self.ranges = ranges
        self._range = ranges.recorder.range("optimizer")
        self.label = label
        self.seen_at = -1
        self.first_at = -1
        self.seen_step = -1

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The range's token; None inside another optimizer's step."""
        ranges = self.ranges
        if (
            not ranges.active
            or get_ident() != ranges.loop.thread_id
            or running_backward() != -1
            or (dispatch_modes() and ranges.elsewhere())
        ):
            if ranges.active and ranges.in_backward and running_backward() != -1:
                ranges.stepped_in_backward = True
                self._saw(ranges)
            return None
        recorder = ranges.recorder
        try:
            token = None
            if not ranges.in_optimizer:
                if recorder.on_event is not None:
                    recorder.on_event("optimizer")
                token = self._range.open()
                recorder.optimizer_steps += 1
                ranges.loop.eval_mode = False
                ranges.in_optimizer = True
            self.seen_at = ranges.backward_steps  # as `_saw`, written out
            if self.first_at < 0:
                self.first_at = self.seen_at
            self.seen_step = recorder.step
        except Exception as error:
            ranges.fail(error)
            return None
        return token

    def _saw(self, ranges: LoopRanges) -> None:
        self.seen_at = ranges.backward_steps
        if self.first_at < 0:
            self.first_at = self.seen_at
        self.seen_step = ranges.recorder.step

    def end(self, token: Any) -> None:
        """Close the range."""
        ranges = self.ranges
        ranges.in_optimizer = False
        try:
            self._range.close(token)
        except Exception as error:
            ranges.fail(error)


class BackwardWatcher:
    """The outermost run of the autograd engine is the range ``backward``.

    ``target`` says whether it accumulates into ``.grad``: only that is a training backward and
    counted; ``torch.autograd.grad`` is not.
    """

    __slots__ = ("_range", "ranges")

    def __init__(self, ranges: LoopRanges) -> None:
        self.ranges = ranges
        self._range = ranges.recorder.range("backward")

    def begin(self, target: Any, args: Sequence[Any]) -> Any:
        """The range's token; None for a backward inside another."""
        ranges = self.ranges
        if (
            ranges.in_backward
            or not ranges.active
            or get_ident() != ranges.loop.thread_id
            or running_backward() != -1
            or (dispatch_modes() and ranges.elsewhere())
        ):
            return None
        recorder = ranges.recorder
        try:
            if recorder.on_event is not None:
                kind = "backward" if target else "grad"
                captured = target and stream_is_capturing()
                recorder.on_event("captured backward" if captured else kind)
            token = self._range.open()
            if target:
                recorder.backwards += 1
                step = recorder.step
                if step < 0:
                    ranges.backward_steps += 1
                elif step != ranges.last_backward_step:
                    ranges.last_backward_step = step
                    ranges.backward_steps += 1
                ranges.loop.eval_mode = False
            ranges.in_backward = True
            ranges.stepped_in_backward = False
            at_lull = ranges.at_lull
            if at_lull is not None:
                ranges.at_lull = None
                at_lull()
        except Exception as error:
            ranges.fail(error)
            return None
        return token

    def end(self, token: Any) -> None:
        """Close the range."""
        ranges = self.ranges
        ranges.in_backward = False
        try:
            self._range.close(token)
            if ranges.stepped_in_backward:
                ranges.backwards_that_stepped += 1
                ranges.recorder.optimizer_steps += 1
                if ranges.recorder.on_event is not None:
                    ranges.recorder.on_event("optimizer in backward")
        except Exception as error:
            ranges.fail(error)
