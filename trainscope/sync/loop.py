"""Where the user's loop is now, as the detector needs to know it when something waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["LoopState"]


class LoopState:
    """Plain attributes that the recorder writes and the detector reads, with no lock.

    ``step`` is None outside a step, ``phase`` None between phases. ``evaluating`` is true while a
    wrapped model runs in eval mode or without gradients. ``eval_mode`` is true once one has run in
    eval mode, until one runs in train mode, or a backward or an optimizer. ``h2d`` opens the
    ``h2d`` range around a copy to the device, or is None. ``thread_id`` is the loop's thread.
    """

    __slots__ = (
        "eval_mode", "evaluating", "finished", "h2d", "phase", "started", "step", "thread_id",
    )  # fmt: skip

    def __init__(self) -> None:
        self.step: int | None = None
        self.phase: str | None = None
        self.evaluating = False
        self.eval_mode = False
        self.started = False
        self.finished = False
        self.h2d: Callable[[], AbstractContextManager[object]] | None = None
        self.thread_id = threading.get_ident()

    def during(self) -> str:
        """``setup`` before the first step, ``teardown`` after the last, else what the loop does."""
        if self.evaluating:
            return "evaluation"
        if self.step is not None or (self.started and not self.finished):
            return "training"
        return "teardown" if self.started else "setup"
