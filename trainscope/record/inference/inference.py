"""``StepInference``: which loop's turns are the steps, decided while the program runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType

from trainscope.record.inference.doubts import counted, doubt_about, nested
from trainscope.record.inference.extent import (
    around,
    in_training,
    learn_batch_loop,
    learn_extent,
    leaves,
)
from trainscope.record.inference.followed import FollowedLoops
from trainscope.record.inference.loops import DATA, LoopTurns
from trainscope.record.inference.open_step import OpenStep
from trainscope.record.inference.owner import owner_of
from trainscope.record.inference.regions import Region
from trainscope.record.inference.seen import Spot

__all__ = ["StepInference"]


class StepInference:
    """Begins and ends steps as the hooks tell of events, and says at the end how it counted.

    Args:
        begin: begins a step.
        end: ends the open step, which counts.
        end_last: the same where the program has left the loop, and ends the step with its newest
            range: that may be long ago.
        drop: ends the open step as if it had not begun: no training backward came.
        claim: is told once, in the first turn that trains, how to know spots (of `spot`) that it
            had been at before that was known.
        backdate: moves the beginning of the open step to an earlier time, in nanoseconds.
        optimizers: whether the program has any optimizer: it would end the turns.
        eval_mode: whether the model of the newest ``evaluation`` is in eval mode.
    """

    def __init__(
        self,
        *,
        begin: Callable[[], None],
        end: Callable[[], None],
        end_last: Callable[[], None],
        drop: Callable[[], None],
        claim: Callable[[Callable[[Spot], bool]], None] = lambda holds: None,
        backdate: Callable[[int], None] = lambda began_ns: None,
        optimizers: Callable[[], bool] = lambda: True,
        eval_mode: Callable[[], bool] = lambda: True,
    ) -> None:
        self._open = OpenStep(begin=begin, end=end, end_last=end_last, drop=drop)
        self._claim = claim
        self._backdate = backdate
        self._optimizers = optimizers
        self._eval_mode = eval_mode
        self._loops = FollowedLoops()
        self._of_steps: list[LoopTurns] = []
        self._no_loop = LoopTurns(Region("block", "", 0))
        self._backwards_in_no_loop = 0
        self._gradients = 0
        self._evaluated = False
        """A model in eval mode has run."""
        self._owner: LoopTurns | None = None
        """The loop that trained last."""
        self._cannot_tell: str | None = None

    def on_event(self, kind: str, *, within_optimizer: bool = False) -> bool:
        """Take in that a range of this kind is about to open on the loop's thread.

        ``kind`` is ``forward``, ``evaluation``, ``backward``, ``grad`` (``torch.autograd.grad``),
        ``optimizer``, ``data`` (``first data``: an iterator's first fetch) or ``no data``: the
        fetch before found none. ``optimizer in backward`` follows a backward that ran one in a
        hook, ``captured backward`` is one that a CUDA graph will replay. What an optimizer's step
        calls (a closure) is all in that step's turn. True: a turn of the training loop has begun,
        and has only fetched so far.
        """
        if self._cannot_tell is not None:
            return False
        if kind == "grad":
            self._gradients += 1
        if kind == "no data":
            self._no_data()
        elif kind == "optimizer in backward":
            learn_extent(self._owner, self._loops.on_way)
        elif kind == "captured backward":
            self._give_up(
                "a training backward was captured into a CUDA graph: replays are not seen"
            )
        elif not within_optimizer:
            self._move(kind)
        else:
            for turns in self._loops.on_way:
                turns.within_newest(kind)
            if kind == "backward":
                self._trained()
                learn_extent(self._owner, self._loops.on_way)
        owner = self._open.owner
        return owner in self._of_steps and owner is not None and owner.only_data

    def spot(self, frame: FrameType | None) -> Spot:
        """Where the program is, at a moment that is no event."""
        return self._loops.spot(frame)

    def inside(self, frame: FrameType | None) -> bool | None:
        """Whether the program trains at this innermost frame, also between steps.

        None before a loop is known. Ends the open step when its loop has been left.
        """
        if self._cannot_tell is not None:
            return True
        if not self._of_steps:
            return None
        inside = in_training(self._of_steps, frame, decided=not self._optimizers())
        owner = self._open.owner
        if owner in self._of_steps and owner not in inside:
            self._left()
        return bool(inside)

    def evaluates(self, frame: FrameType | None) -> bool:
        """Whether this innermost frame is in a loop that has evaluated and never trained."""
        if not self._evaluated:  # it is asked at each wait
            return False
        loops = self._loops.only_evaluating(self.steps or 0)
        return bool(loops and around(loops, frame))

    @property
    def steps(self) -> int | None:
        """Steps counted so far; None when that cannot be told."""
        if self._cannot_tell is not None:
            return None
        if not self._of_steps:
            return 1 if self._backwards_in_no_loop == 1 else 0
        return sum(turns.trained + turns.backward_here for turns in self._of_steps)

    @property
    def known(self) -> bool:
        """Whether the open step's loop is known to train; till then there may be no step."""
        return self._open.owner in self._of_steps

    @property
    def step_is_sure(self) -> bool:
        """Whether the open step counts, whatever comes: it is a loop's turn that has trained."""
        return self._open.trained and self._open.owner is not self._no_loop

    def finish(self) -> None:
        """End the open step: the program has ended."""
        self._close(left=True)

    @property
    def counted_by(self) -> str:
        """How the steps so far were counted, or why that cannot be told."""
        doubt = self._cannot_tell or doubt_about(
            self._of_steps, self._backwards_in_no_loop, self._gradients
        )
        if doubt is not None:
            return f"cannot tell: {doubt}"
        return counted(self._of_steps, self._backwards_in_no_loop)

    # ---- events ---------------------------------------------------------------------------------
    def _move(self, kind: str) -> None:
        """Find the loops around an event and begin or end the step that it begins or ends."""
        new = self._loops.event(kind, sys._getframe(1))
        on_way = self._loops.on_way
        if kind == "evaluation" and self._eval_mode():
            self._evaluated = True
            for turns in on_way:
                turns.evaluated_after(self.steps or 0)
        was_open = self._open.owner
        self._leave(kind, new)
        if was_open is not None and self._open.owner is None:
            now_ns = perf_counter_ns()  # what ending a step took, such as a window's, is in none
            for turns in new:
                turns.began_ns = now_ns
        if kind == "backward":
            self._trained()
            return
        self._begin_turn(kind, new)
        if kind == "optimizer":
            learn_extent(self._owner, on_way)

    def _leave(self, kind: str, new: list[LoopTurns]) -> None:
        """End the open step when its loop has turned, or when the program has gone elsewhere."""
        owner = self._open.owner
        if owner is None:
            last = self._owner  # its step ended where it found no more data
            if last is not None and last not in self._loops.on_way:
                last.gone = last.gone or leaves(kind, last, self._loops.on_way)
            return
        if owner in self._loops.on_way:
            if owner in new:
                self._close(left=owner.entered)
        elif owner is self._no_loop:
            # one that trained may be the only step there is, whatever follows it
            if self._loops.on_way and not self._open.trained:
                self._close()
        elif leaves(kind, owner, self._loops.on_way):
            # the loop around it fetches its next batch: what it did until now was training
            self._left(for_good=not (owner.extent in self._loops.on_way and kind in DATA))

    def _left(self, *, for_good: bool = True) -> None:
        """The loop of the open step is no longer there."""
        owner = self._open.owner
        self._close(left=for_good)
        if owner is not None:
            owner.leave()

    def _no_data(self) -> None:
        """The fetch before found the end of the data: no turn begins with it."""
        owner = self._open.owner
        if owner is not None and owner.only_data:
            self._close()
        for turns in self._loops.on_way:
            turns.forget_data()

    def _begin_turn(self, kind: str, new: list[LoopTurns]) -> None:
        """Begin a step at the first event of a turn, if that turn may be one."""
        if not new and self._open.owner is not None:
            return
        ours = [turns for turns in self._loops.on_way if turns in self._of_steps]
        if ours:
            owner = ours[-1]
            if owner in new:
                learn_batch_loop(owner, self._loops.on_way)
                self._open_step(owner)
                around = owner.extent
                if around in self._loops.on_way and around is not None and around.was_only_data:
                    self._backdate(around.began_ns)  # the batch of which it takes the parts
            return
        if self._open.owner is not None or kind not in ("forward", "optimizer"):
            return
        if not self._loops.on_way:
            if not self._of_steps and not self._backwards_in_no_loop:
                self._open_step(self._no_loop)
            return
        inner = self._loops.on_way[-1]
        around_steps = any(inner.region in turns.around for turns in self._of_steps)
        if not inner.often_idle and not around_steps:
            self._open_step(inner)

    def _trained(self) -> None:
        """A training backward: one of the loops around it is one whose turns are steps."""
        if self._loops.blind is not None:
            self._give_up(f"{self._loops.blind}, and a loop there may be the training loop")
            return
        if not self._loops.on_way:
            self._backwards_in_no_loop += 1
            if self._backwards_in_no_loop > 1 or self._of_steps:
                if self._open.owner is self._no_loop:
                    self._close()
                return
            self._open_step(self._no_loop)
            self._open.trained = True
            return
        owner = owner_of(self._loops.on_way)
        if isinstance(owner, str):
            self._give_up(owner)
            return
        first = owner not in self._of_steps
        if first:
            if not self._of_steps:
                self._claim(owner.holds)
            self._of_steps.append(owner)
            doubt = nested(self._of_steps)
            if doubt is not None:
                self._give_up(doubt)
                return
        self._open_step(owner)
        if first:
            self._backdate(owner.began_ns)
        self._open.trained = True
        self._owner = owner

    # ---- steps ----------------------------------------------------------------------------------
    def _open_step(self, owner: LoopTurns) -> None:
        if self._open.owner is owner:
            return
        self._close(left=self._open.owner not in self._loops.on_way)
        self._open.begin(owner, self._loops.events)

    def _close(self, *, left: bool = False) -> None:
        step = self._open
        alone = step.owner is self._no_loop
        counts = step.trained and not (
            alone and (self._of_steps or self._backwards_in_no_loop != 1)
        )
        if alone and counts:
            since = step.since
            self._claim(lambda spot: spot.events_before >= since)
        step.close(left=left, counts=counts)

    def _give_up(self, reason: str) -> None:
        self._cannot_tell = reason
        self._close()
