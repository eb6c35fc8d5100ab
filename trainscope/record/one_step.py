"""``with scope.step():`` one step; within another step it is none, and that is told once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from trainscope.record.ranges import StepRange

if TYPE_CHECKING:
    from trainscope.record.session import Session

__all__ = ["OneStep", "WhoseStep"]


class _Loop:
    """One ``scope.steps(loader)``; alive as long as someone goes through it."""

    __slots__ = ("__weakref__",)


class WhoseStep:
    """Who has begun the step that is open now.

    A step whose beginner is gone was left open (by a Ctrl-C, say): what comes then is not in it.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.beginner: weakref.ref[object] | None = None

    def by_loop(self) -> Callable[[], None]:
        """What begins the steps of one ``scope.steps(loader)``, which is to hold it."""
        loop, begin_step = _Loop(), self.session.calls.begin_step
        beginner: weakref.ref[object] = weakref.ref(loop)

        def begin(held: _Loop = loop) -> None:
            begin_step()
            self.beginner = beginner

        return begin

    def begun_by(self) -> str | None:
        """What is around whatever comes now, in words; None: no step."""
        beginner = None if self.beginner is None else self.beginner()
        if beginner is None or self.session.recorder.step < 0:
            return None
        return "scope.steps(loader)" if isinstance(beginner, _Loop) else "another scope.step()"


class OneStep(StepRange):
    """One step, whose number the scope counts, unless there is a step around it."""

    __slots__ = ("__weakref__", "_around", "_entered_within")

    def __init__(self, around: WhoseStep) -> None:
        calls = around.session.calls
        super().__init__(calls.begin_step, calls.end_step)
        self._around = around
        self._entered_within = 0

    def __enter__(self) -> OneStep:
        around = self._around
        begun_by = around.begun_by()
        session = around.session
        if begun_by is not None:
            self._entered_within += 1
            session.faults.tell_once(
                "step in a step",
                f"scope.step() within a step of {begun_by} (step {session.recorder.step}) begins "
                "no step of its own: keep one of the two, and name a part of a step with "
                "scope.phase(…)",
            )
            return self
        session.counted_by = "scope.step"
        super().__enter__()
        around.beginner = weakref.ref(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._entered_within:
            self._entered_within -= 1
        else:
            super().__exit__(kind, error, trace)
