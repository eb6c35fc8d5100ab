"""The recording of ``trainscope run``, which gives way to a scope that the program makes itself."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["StandIn", "stand_in"]


class StandIn:
    """Holds how the runner's scope is told to step aside; at most one, and only once."""

    def __init__(self) -> None:
        self._step_aside: Callable[[], None] | None = None
        self._dry_run = False

    def offer(self, step_aside: Callable[[], None], *, dry_run: bool) -> None:
        """Have ``step_aside`` called when the program makes a scope."""
        self._step_aside = step_aside
        self._dry_run = dry_run

    def withdraw(self) -> None:
        """Forget it: the runner's scope has ended."""
        self._step_aside = None

    def step_aside(self) -> bool:
        """End the runner's recording, if there is one; True when that was a dry run."""
        step_aside, self._step_aside = self._step_aside, None
        if step_aside is None:
            return False
        step_aside()
        return self._dry_run


stand_in = StandIn()
