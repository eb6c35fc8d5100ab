"""A run held against its baseline, as data."""

from __future__ import annotations

from pydantic import Field

from trainscope.report.gate.baseline import KnownSync
from trainscope.report.model_times import Part

__all__ = ["Breach", "Judgement"]


class Breach(Part):
    """One thing that the baseline does not allow."""

    what: str
    """``new sync``, ``one more line``, ``more often`` or ``budget``."""
    where: str
    """``train.py:41 in step``, or the budget's name."""
    source: str | None = None
    kind: str | None = None
    code: str | None = None
    words: str
    advice: str | None = None


class Judgement(Part):
    """A run held against its baseline."""

    passed: bool
    breaches: list[Breach]
    known: int
    """Syncs of the run that the baseline has."""
    gone: list[KnownSync]
    """Syncs of the baseline that the run has not."""
    notes: list[str] = Field(default_factory=list)
    """What the judgement could not take into account."""
