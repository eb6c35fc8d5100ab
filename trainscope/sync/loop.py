"""Where the user's loop is now, as the detector needs to know it when something waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType

__all__ = ["LoopState"]


class LoopState:
    """Plain attributes that the recorder writes and the detector reads, with no lock.

    ``step`` is None outside a step. ``trial`` is true while it may yet turn out that this step has
    not begun: until then what waits is set-up's or between steps. ``find_phase`` tells which phase
    is open, None between phases: it is asked at a wait, while phases come and go in every step.
    ``evaluating`` is true while a wrapped model runs in eval mode or without gradients.
    ``eval_mode`` is true once one has run in eval mode, until one runs in train mode, or a
    backward or an optimizer. ``h2d`` opens the ``h2d`` range around a copy to the device, or is
    None. ``thread_id`` is the loop's thread.
    ``check_inside`` tells of an innermost frame of that thread whether the loop is still around
    it, None where that is not known; it ends the step of a loop that has been left.
    ``check_evaluates`` tells of one whether it is in a loop that only evaluates.
    """

    __slots__ = (
        "check_evaluates", "check_inside", "eval_mode", "evaluating", "find_phase", "finished",
        "h2d", "started", "step", "thread_id", "trial",
    )  # fmt: skip

    def __init__(self) -> None:
        self.step: int | None = None
        self.trial = False
        self.find_phase: Callable[[], str | None] | None = None
        self.evaluating = False
        self.eval_mode = False
        self.started = False
        self.finished = False
        self.h2d: Callable[[], AbstractContextManager[object]] | None = None
        self.thread_id = threading.get_ident()
        self.check_inside: Callable[[FrameType | None], bool | None] | None = None
        self.check_evaluates: Callable[[FrameType | None], bool] | None = None

    @property
    def phase(self) -> str | None:
        """The phase that is open, None between phases; asked on the loop's thread alone."""
        return None if self.find_phase is None else self.find_phase()

    def inside(self, frame: FrameType | None) -> bool:
        """Whether the loop trains at ``frame``, of its thread, though it may be between steps."""
        known = self.check_inside is not None and self.check_inside(frame)
        return self.step is not None or (bool(known) and self.started and not self.finished)

    def evaluates(self, frame: FrameType | None) -> bool:
        """Whether ``frame``, of the loop's thread, is in an evaluation after the first step."""
        return self.started and self.check_evaluates is not None and self.check_evaluates(frame)

    def during(self, inside: bool = False) -> str:
        """``setup`` before the first step, ``teardown`` after the last, else what the loop does.

        That is ``evaluation``, ``training`` in a step or where it is known to be ``inside`` the
        loop, and else ``between``.
        """
        if self.evaluating:
            return "evaluation"
        if self.trial:
            return "between" if self.step else "setup"
        if self.step is not None or inside:
            return "training"
        if self.started:
            return "teardown" if self.finished else "between"
        return "setup"

    def h2d_range(self, frame: FrameType | None) -> AbstractContextManager[object] | None:
        """The range to open around a copy to the device at ``frame``; None between steps, in a
        phase and on another thread.
        """
        if self.h2d is None or threading.get_ident() != self.thread_id:
            return None
        if self.phase is not None or self.step is None:
            return None
        self.inside(frame)
        return self.h2d() if self.step is not None else None
