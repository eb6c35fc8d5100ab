"""``run.json``: what a run was, known before its first step."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["RUN_SCHEMA_VERSION", "RunInfo"]

RUN_SCHEMA_VERSION = 1


class RunInfo(BaseModel):
    """The facts of one run; all but the first three may be missing after an early kill.

    Unknown keys are ignored; a later ``schema_version`` is refused by the reader.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = RUN_SCHEMA_VERSION
    launch_id: str
    """The same on every rank of one launch, and on no other launch."""
    world_size: int = Field(default=1, ge=1, le=1_000_000)
    created_unix_ns: int | None = None
    perf_counter_ns: int | None = None
    """``time.perf_counter_ns()`` at ``created_unix_ns``: what turns a range's time into a date."""
    device: str | None = None
    """Name of the GPU; None where there is none."""
    torch: str | None = None
    trainscope: str | None = None
    python: str | None = None
    platform: str | None = None
    host: str | None = None
    cwd: str | None = None
    argv: list[str] = []
    dry_run: bool = False
    source: str = "run"
    """``run``: recorded live. Readers of other files say what they read."""
    counted_by: str | None = None
    """How steps were counted: ``scope.steps``, ``inferred: …`` or ``cannot tell: …``."""
    settings: dict[str, Any] = {}
    schedule: dict[str, Any] | None = None
    notes: list[str] = []
    """What a reader of the report has to know about how the files came about."""

    @property
    def steps_in_doubt(self) -> bool:
        """Whether the steps that there are may be few of the loop's turns, or no turns of it."""
        return self.counted_by is not None and self.counted_by.startswith("cannot tell")
