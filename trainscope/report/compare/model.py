"""The schema of a comparison (version 1): what ``compare --format json`` prints."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainscope.report.model_times import Part

__all__ = ["Comparison", "Row", "Side", "SyncChange", "TimeChange"]


class Side(Part):
    """One of the two."""

    path: str
    device: str | None
    steps: int
    dry_run: bool
    source: str


class TimeChange(Part):
    """One time of a step, in ms, before and after; null where one side has none."""

    name: str
    before_ms: float | None
    after_ms: float | None
    ratio: float | None = None
    """After over before."""
    band: tuple[float, float] | None = None
    """95 % interval of the ratio from the noise within each run; null where it is not known."""
    told: bool | None = None
    """Whether ``band`` leaves 1 out; null without a band."""


class SyncChange(Part):
    """One sync, by file, function, source text and kind."""

    file: str
    function: str
    source: str
    kind: str
    lines_before: list[int] = Field(default_factory=list)
    lines_after: list[int] = Field(default_factory=list)
    per_step_before: float | None
    per_step_after: float | None
    blocked_ms_before: float | None = None
    blocked_ms_after: float | None = None


class Row(Part):
    """A finding or a kernel's operator that only one side has, or whose time changed."""

    name: str
    before_ms: float | None
    after_ms: float | None


class Comparison(Part):
    """What changed from the one to the other."""

    schema_version: Literal[1] = 1
    before: Side
    after: Side
    verdict: str
    step: TimeChange
    phases: list[TimeChange]
    idle: list[TimeChange]
    """GPU idle per step by cause; empty unless both have a window."""
    operators: list[Row]
    """Kernel time per step by operator, largest change first; empty unless both have a window."""
    syncs_new: list[SyncChange]
    syncs_gone: list[SyncChange]
    syncs_changed: list[SyncChange]
    """Those whose rate changed by more than a fifth."""
    findings_new: list[str]
    findings_gone: list[str]
    notes: list[str]
    """What stands in the way of comparing the two, and what the intervals do not hold."""
