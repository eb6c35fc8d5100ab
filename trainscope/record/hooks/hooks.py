"""``Hooks``: the ranges ``forward``, ``backward`` and ``optimizer`` with no edit in the loop."""

from __future__ import annotations

from typing import Any

import torch

from trainscope.errors import ConfigError
from trainscope.notice import warn
from trainscope.record.hooks.compiled import COMPILED, original
from trainscope.record.hooks.engine import ENGINE
from trainscope.record.hooks.everything import EVERY_MODEL, NEW_OPTIMIZERS, living_optimizers
from trainscope.record.hooks.fetches import FETCHES, FetchWatcher
from trainscope.record.hooks.methods import CALLS, STEPS, steps_of
from trainscope.record.hooks.module_watchers import EveryModelWatcher, ModuleWatcher
from trainscope.record.hooks.ranges import LoopRanges, RangeRecorder
from trainscope.record.hooks.unseen import (
    unseen_forwards,
    unseen_modules,
    unseen_optimizer_steps,
    unseen_optimizer_times,
)
from trainscope.record.hooks.watchers import BackwardWatcher, ForwardWatcher, StepWatcher
from trainscope.sync.own_code import leave_uncompiled

__all__ = ["Hooks"]


class Hooks:
    """Opens ranges of ``recorder`` around what is added, until ``remove``.

    Only outermost calls on the loop's thread open one, and nothing is put on a model. An error of
    the recorder turns the hooks off with one warning; results and exceptions of the user's code
    pass through. Any number of Hooks may watch the same objects.
    """

    def __init__(self, recorder: RangeRecorder) -> None:
        # what runs between two graphs is compiled too, and would be told that it is being traced
        leave_uncompiled("trainscope.record")
        self._ranges = LoopRanges(recorder)
        self._forwards: list[ForwardWatcher] = []
        self._modules: list[ModuleWatcher] = []
        self._steps: list[StepWatcher] = []
        self._backward: BackwardWatcher | None = None
        self._every_model: EveryModelWatcher | None = None
        self._fetches: FetchWatcher | None = None
        self._holds_compiled = False
        self._notes: list[str] = []
        self.watches_optimizers = False
        """Whether any optimizer was ever added: else no step count is known."""

    @property
    def has_optimizers(self) -> bool:
        """Whether there is an optimizer whose steps are seen."""
        return bool(self._steps)

    @property
    def lulls(self) -> LoopRanges:
        """Tells when a backward begins: see ``at_lull``."""
        return self._ranges

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer's step runs now: a backward in it is its closure's."""
        return self._ranges.in_optimizer

    def add_model(self, model: torch.nn.Module, module_depth: int = 0) -> None:
        """Open ``forward`` (or ``evaluation``) around each call of ``model``.

        ``module_depth`` adds a range for each submodule down to that depth, named by its path.
        """
        if not isinstance(model, torch.nn.Module):
            raise ConfigError(
                f"model must be a torch.nn.Module, not {type(model).__name__}; "
                "for anything else use `with scope.phase('forward'):`"
            )
        if isinstance(module_depth, bool) or not isinstance(module_depth, int) or module_depth < 0:
            raise ConfigError(
                f"module_depth must be an integer of 0 or more, not {module_depth!r}; "
                "0 opens no range for submodules"
            )
        try:
            self._see_backward()
            self._see_compiled()
        except Exception as error:
            self._ranges.fail(error)
            return
        try:
            target = original(model)
            if not CALLS.told(target, self._forwards):
                watcher = ForwardWatcher(self._ranges, type(target).__name__)
                CALLS.watch(target, watcher)
                self._forwards.append(watcher)
            self._add_submodules(target, "", module_depth)
        except Exception as error:  # a class that lets nothing be set on it, say
            self._cannot(f"the forward of {type(model).__name__}", error)

    def add_optimizer(self, optimizer: Any) -> None:
        """Open ``optimizer`` around each ``optimizer.step()``."""
        if not callable(getattr(optimizer, "step", None)):
            raise ConfigError(
                f"optimizer must have a callable `step`, and {type(optimizer).__name__} has none; "
                "pass optimizers one by one: scope.wrap(model, optimizer_a, optimizer_b)"
            )
        if isinstance(optimizer, type):
            raise ConfigError(
                f"optimizer must be an optimizer, not the class {optimizer.__name__}; "
                "make one first and pass that: scope.wrap(model, optimizer)"
            )
        try:
            self._see_backward()
        except Exception as error:
            self._ranges.fail(error)
            return
        try:
            self._watch_step(steps_of(optimizer))
        except Exception as error:
            self._cannot(f"the steps of {type(optimizer).__name__}", error)

    def add_everything(self) -> None:
        """Open ranges around each call of any module and step of any optimizer, if outermost.

        So for each batch of a ``torch.utils.data.DataLoader``: ``data``.
        """
        try:
            self._see_backward()
            self.watches_optimizers = True
            if self._every_model is None:
                self._every_model = EveryModelWatcher(self._ranges, "any module")
                EVERY_MODEL.watch(self._every_model)
                NEW_OPTIMIZERS.tell(self._added_later)
                for optimizer in living_optimizers():
                    self._watch_step(optimizer)
                self._fetches = FetchWatcher(self._ranges)
                FETCHES.watch(self._fetches)
        except Exception as error:
            self._ranges.fail(error)

    def begin_step(self) -> None:
        """Forget calls under way; where steps are inferred, one may begin in the middle of them."""
        ranges = self._ranges
        if ranges.recorder.on_event is None:
            ranges.in_forward = ranges.in_backward = ranges.in_optimizer = ranges.in_fetch = False
            ranges.turn += 1

    def remove(self) -> None:
        """Take every hook away; ``not_seen`` names what must stay because other code wrapped it."""
        self._notes += self._silences()
        self._ranges.active = False
        every, backward = self._every_model, self._backward
        self._notes += CALLS.unwatch(frozenset([*self._forwards, *self._modules]))
        self._notes += STEPS.unwatch(frozenset(self._steps))
        if backward is not None:
            self._notes += ENGINE.unwatch(backward)
        if every is not None:
            self._notes += EVERY_MODEL.unwatch(every)
            self._notes += NEW_OPTIMIZERS.forget(self._added_later)
        if self._fetches is not None:
            self._notes += FETCHES.unwatch(self._fetches)
        if self._holds_compiled:
            self._notes += COMPILED.release(self)
        self._forwards, self._modules, self._steps = [], [], []
        self._backward, self._every_model, self._holds_compiled = None, None, False
        self._fetches = None

    def not_seen(self) -> tuple[str, ...]:
        """What the hooks know that they could not see, in words."""
        return tuple(dict.fromkeys((*self._notes, *self._silences())))

    def _silences(self) -> tuple[str, ...]:
        ranges = self._ranges
        every = self._every_model
        forwards = self._forwards if every is None or self._forwards else [every]
        failed = () if ranges.failure is None else (f"ranges after an error: {ranges.failure}",)
        return (
            *failed,
            *unseen_forwards(forwards, ranges),
            *unseen_modules(self._modules, ranges.recorder.forwards),
            *unseen_optimizer_steps(self._steps, ranges),
            *unseen_optimizer_times(ranges),
        )

    def _cannot(self, what: str, error: Exception) -> None:
        """Say once that one thing is not recorded; all else is."""
        note = f"{what}: {type(error).__name__}: {error}"
        if note not in self._notes:
            self._notes.append(note)
            warn(f"trainscope cannot record {note}; your loop goes on unchanged", stacklevel=5)

    def _added_later(self, optimizer: torch.optim.Optimizer) -> None:
        try:
            self._watch_step(optimizer)
        except Exception as error:
            self._ranges.fail(error)

    def _watch_step(self, optimizer: Any) -> None:
        self.watches_optimizers = True
        if not STEPS.told(optimizer, self._steps):
            watcher = StepWatcher(self._ranges, type(optimizer).__name__)
            STEPS.watch(optimizer, watcher)
            self._steps.append(watcher)

    def _add_submodules(self, module: torch.nn.Module, path: str, depth: int) -> None:
        if depth == 0:
            return
        for name, child in module.named_children():
            target = original(child)
            child_path = f"{path}{name}"
            # a ModuleList is never called itself
            has_forward = getattr(type(target), "forward", None) is not torch.nn.Module.forward
            if has_forward and not CALLS.told(target, self._modules):
                watcher = ModuleWatcher(self._ranges, child_path)
                CALLS.watch(target, watcher)
                self._modules.append(watcher)
            self._add_submodules(target, f"{child_path}.", depth - 1)

    def _see_backward(self) -> None:
        if self._backward is None:
            self._backward = BackwardWatcher(self._ranges)
            if not ENGINE.watch(self._backward):
                self._notes.append(f"backward: torch {torch.__version__} has no known entry to it")

    def _see_compiled(self) -> None:
        if not self._holds_compiled:
            COMPILED.hold(self)
            self._holds_compiled = True
