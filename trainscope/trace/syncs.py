"""What a detector saw: sync sites, and how far it could see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

__all__ = ["DetectorState", "SyncSite"]

Whole = Annotated[int, Field(ge=0, lt=2**63)]
"""What a count and a time in nanoseconds may be; checked where a file is read."""


@dataclass(frozen=True)
class SyncSite:
    """All waits of one kind at one line of code, under one phase, thread and ``during``."""

    kind: str
    """A name of ``trainscope.catalogue.kinds``, such as ``"item"``."""
    code: str
    """Its stable code, such as ``"TS101"``."""
    explicit: bool
    """The user asked for the wait (``torch.cuda.synchronize()``)."""
    allowed: str | None
    """The reason given to ``allow_sync``, or None."""
    file: str
    """Absolute path, or a name such as ``<stdin>``."""
    line: Whole
    function: str
    source: str
    """The source line, stripped; empty when it cannot be read."""
    caller: str | None
    """The user frame above, as ``file:line``, most frequent one; None at module level."""
    via: str | None
    """The library frame that waited on the user's behalf, as ``module:line function``; of several
    the most frequent one."""
    phase: str | None
    """The phase of the step it happened in; None outside a step or between phases."""
    thread: str
    """``main`` (the loop's), ``autograd``, or the name of a helper thread."""
    during: str
    """``setup``, ``training``, ``between``, ``evaluation``, ``compilation`` or ``teardown``.

    ``between`` is outside the steps after the first and before the last.
    """
    count: Whole
    """Waits over the whole program."""
    counted_internally: bool
    """True for a ``print`` and its like: one call makes many internal reads, counted as one."""
    timed: Whole
    """How many of them were timed; the debug mode's own warnings carry no start."""
    blocked_ns_total: Whole
    """Sum over the timed waits, in nanoseconds."""
    blocked_ns_median: Whole | None
    """Median over the timed waits, in nanoseconds; None when none was timed."""
    advice: str
    steps: Whole = 0
    """Distinct steps it was seen in; 0 where that was not counted."""
    vias: tuple[tuple[str, Whole], ...] = ()
    """Library frames and how many of the waits each made, most frequent first; empty where one, or
    none, made them all."""


@dataclass(frozen=True)
class DetectorState:
    """How far the detector could see, so that "no syncs" can be told from "did not look"."""

    mode: str = "off"
    """``record``, ``warn``, ``error`` or ``off``."""
    dry_run: bool = False
    armed_steps: int = 0
    """Steps at whose beginning and end the detector was whole."""
    disarmed: tuple[str, ...] = ()
    """Stretches it was not, in words: ``steps 120-124: catch_warnings removed the filter``."""
    disarmed_before: str | None = None
    """Why it was not before the first step, unless the first of the stretches says the same."""
    cannot_see: tuple[str, ...] = ()
    """Kinds of waits or facts it has no way to know here, in words."""
    races: tuple[SyncSite, ...] = field(default=())
    """Reads of a value whose copy may not have landed (kind ``race``), seen in a dry run only."""

    @property
    def unwatched(self) -> tuple[str, ...]:
        """When it was not whole, before the steps and in them, in words."""
        if self.disarmed_before is None:
            return self.disarmed
        return (f"before the first step: {self.disarmed_before}", *self.disarmed)
