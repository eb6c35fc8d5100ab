"""Which ranges the loop's thread has open, so that only outermost calls open one."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Protocol

import torch
from torch._guards import TracingContext

from trainscope.notice import warn
from trainscope.sync.loop import LoopState

__all__ = ["LoopRanges", "NamedRange", "RangeRecorder", "dispatch_modes", "running_backward"]

running_backward = torch._C._current_graph_task_id
"""-1 when this thread runs no backward."""
dispatch_modes = torch._C._len_torch_dispatch_stack
"""How many ``TorchDispatchMode`` this thread is in."""


class NamedRange(Protocol):
    """What opens and closes ranges of one name, on the loop's thread."""

    def open(self) -> int:
        """Begin a range; the token closes it."""
        ...

    def close(self, token: int) -> None:
        """End a range, and any that was left open inside it."""
        ...


class RangeRecorder(Protocol):
    """What the hooks need of a recorder."""

    loop: LoopState
    step: int
    forwards: int
    backwards: int
    optimizer_steps: int
    on_event: Callable[[str], object] | None

    def range(self, name: str) -> NamedRange:
        """What opens and closes ranges of that name."""
        ...

    def open(self, name: str) -> int:
        """Begin a range; the token closes it."""
        ...

    def close_aside(self, token: int) -> None:
        """End a range whose step is not known yet."""
        ...


class LoopRanges:
    """The state all watchers of one recorder share.

    ``active`` turns False for good when the recorder raises, and in a forked child.
    """

    __slots__ = (
        "__weakref__",
        "active",
        "at_lull",
        "backward_steps",
        "backwards_that_stepped",
        "failure",
        "in_backward",
        "in_fetch",
        "in_forward",
        "in_optimizer",
        "last_backward_step",
        "loop",
        "recorder",
        "stepped_in_backward",
        "turn",
    )

    def __init__(self, recorder: RangeRecorder) -> None:
        self.recorder = recorder
        self.loop = recorder.loop
        self.active = True
        self.at_lull: Callable[[], object] | None = None
        """Called once, as the next backward begins: it runs in C++, and long without Python."""
        self.failure: str | None = None
        self.in_forward = False
        self.in_backward = False
        self.in_optimizer = False
        self.in_fetch = False
        self.stepped_in_backward = False
        """Whether an optimizer stepped in a hook of the backward that runs, or of the last one."""
        self.backwards_that_stepped = 0
        self.backward_steps = 0
        """Steps with at least one training backward; outside a step each backward counts."""
        self.last_backward_step = -1
        """The newest step with a training backward; -1: none has had one."""
        self.turn = 0
        """Counts the times that every call was declared over."""
        _ALIVE.add(self)
        _watch_forks()

    def elsewhere(self) -> bool:
        """Off, on another thread than the loop's, in a running backward, or while compiling."""
        return (
            not self.active
            or get_ident() != self.loop.thread_id
            or running_backward() != -1
            or (dispatch_modes() > 0 and _compiling())
        )

    def fail(self, error: Exception) -> None:
        """Turn all hooks of this recorder off, with one warning, because of an error of ours."""
        if not self.active:
            return
        self.active = False
        self.failure = f"{type(error).__name__}: {error}"
        text = (
            "trainscope no longer records forward, backward and optimizer ranges, because of an "
            f"error of its own ({self.failure}); your loop goes on unchanged."
        )
        warn(text, stacklevel=4)


def _compiling() -> bool:
    """Whether torch traces on this thread: it then calls models and ``autograd.grad`` itself.

    Tracing always sets dispatch modes, so this slower question is asked only where there are any.
    """
    return torch.compiler.is_compiling() or TracingContext.try_get() is not None


_ALIVE: weakref.WeakSet[LoopRanges] = weakref.WeakSet()
_FORKS_WATCHED = False


def _watch_forks() -> None:
    """A forked child inherits the patches, and the thread id too; it must record nothing."""
    global _FORKS_WATCHED
    if not _FORKS_WATCHED and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_after_fork)
        _FORKS_WATCHED = True


def _forget_after_fork() -> None:
    for ranges in _ALIVE:
        ranges.active = False
