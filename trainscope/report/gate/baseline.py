"""The baseline file: the syncs a program may have, and its budgets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["BASELINE_SCHEMA_VERSION", "Baseline", "Budgets", "KnownSync"]

BASELINE_SCHEMA_VERSION = 1
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    """Strict: a misspelt budget that nobody checks would be the worst of all."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Budgets(_Part):
    """What a run may cost at most, null where it may cost anything; edited by hand."""

    step_ms: Limit | None = None
    """Median time of a step; of the slowest rank."""
    syncs_per_step: Limit | None = None
    """Waits in a step, those of `allow_sync` left out; of the rank with most."""
    blocked_ms_per_step: Limit | None = None
    """Time in these waits; a dry run cannot tell it."""
    gpu_idle_ms_per_step: Limit | None = None
    """From the captured window; a run without one cannot tell it."""


class KnownSync(_Part):
    """A sync that is known, by what it is: no line number, so that code may move."""

    file: str
    function: str
    source: str
    kind: str
    lines: Annotated[int, Field(ge=1)] = 1
    """Lines with this same source text in the function."""
    per_step: Limit | None = None
    reason: str | None = None
    """Why it may stay; edited by hand, kept by ``--update``."""


class Baseline(_Part):
    """What ``trainscope check`` holds a run against."""

    schema_version: Literal[1] = BASELINE_SCHEMA_VERSION
    dry_run: bool = False
    """Made from a dry run, which sees other kinds of waits than a GPU does."""
    steps: Annotated[int, Field(ge=0)] = 0
    budgets: Budgets = Budgets()
    syncs: list[KnownSync] = Field(default_factory=list)
