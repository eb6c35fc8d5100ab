"""``WindowSite``: the place of a wait, as far as a captured trace tells it."""

from __future__ import annotations

from dataclasses import dataclass

from trainscope.trace.syncs import SyncSite

__all__ = ["WindowSite"]


@dataclass(frozen=True)
class WindowSite:
    """A place where the loop waits: a line, a function, or a spot among ranges and operators."""

    kind: str
    """A name of ``trainscope.catalogue.kinds``."""
    file: str | None
    """None where neither stacks nor the live detector tell it."""
    line: int | None
    line_is: str
    """What ``line`` is: ``wait`` (the line that waits, from the live detector), ``function`` (the
    first line of the function that waits), ``running`` (where that function stood when recording
    began) or empty."""
    function: str | None
    phase: str | None
    """The outermost range inside the step around it; None for none."""
    ranges: tuple[str, ...]
    """The ranges around it inside the step, outermost first."""
    operator: str
    """The outermost operator around it, or the name of the call."""
    after: str
    """The outermost operator before it in the step on its thread; empty for none."""
    thread: str
    """``main`` (the loop's), ``autograd``, or the name of a helper thread."""
    ordinal: int
    """1 for the first site in a step of those alike but for ``after`` and ``earlier``."""
    alike: int
    """How many of them there are."""
    in_steps: bool
    per_step: float | None = None
    """Mean number of waits a step; None without steps."""
    per_seen_step: float | None = None
    """The same over the steps that have any."""
    earlier: str = ""
    """The outermost operator before ``after``, where no other wait lies between."""
    live: SyncSite | None = None
    """The live detector's site that it is, where only that one can be meant."""

    @property
    def place(self) -> str:
        """Where it is, in words: ``train.py:31`` or ``2nd aten::item in forward``."""
        which = f"{_ordinal(self.ordinal)} {self.operator}" if self.alike > 1 else self.operator
        if self.file is not None:
            at = f"{self.file}:{self.line}"
            if self.line_is == "wait":
                return at
            words = "which begins at" if self.line_is == "function" else "seen at"
            return f"{which} in {self.function} ({words} {at})"
        where = f" in {' > '.join(self.ranges)}" if self.ranges else ""
        after = f", after {self.after}" if self.after else ""
        thread = "" if self.thread == "main" else f", {self.thread} thread"
        return f"{which}{where}{after}{thread}"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"
