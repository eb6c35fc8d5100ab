"""The times in a report's schema: steps, phases, ranges."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "NS_PER_MS",
    "LeftOut",
    "LongSteps",
    "Part",
    "Phase",
    "RangeReport",
    "Spread",
    "StepsReport",
]

NS_PER_MS = 1e6


class Part(BaseModel):
    """A part of a report: frozen, and a key that a later version added is no fault."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Spread(Part):
    """Median, 10th and 90th percentile."""

    median: float
    p10: float
    p90: float


class LeftOut(Part):
    """Steps that ``wall_ms`` and the phases do not count, though ``count`` does."""

    warm_up: int
    captured: int
    """Steps in captured windows: profiling slows them."""
    slowed: int = 0
    """Steps after a window whose profiler stayed in the process."""


class LongSteps(Part):
    """Measured steps that took more than ``over_median`` times the median."""

    over_median: float
    count: int
    of: int
    """How many steps were measured."""
    share: float
    """Of the time of all measured steps."""
    first: list[int]
    """Numbers of the first ones."""


class StepsReport(Part):
    """How many steps, and how long they took on the CPU."""

    count: int
    optimizer_steps: int | None
    counted_by: str | None
    wall_ms: Spread | None
    left_out: LeftOut = LeftOut(warm_up=0, captured=0)
    long: LongSteps | None = None
    """None where there is none."""


class Phase(Part):
    """One phase: its time summed within each step that has it."""

    name: str
    per_step_ms: Spread
    where: Literal["host", "gpu"]
    steps: int | None = None
    """Measured steps that have this phase; the spread is over these."""
    share: float | None = None
    """Of the time of the measured steps, long ones left out: they hold something else."""


class RangeReport(Part):
    """The ranges of one name at one depth that are no phases."""

    name: str
    depth: int
    inside: str | None
    """The outermost range around most of them: in steps the phase."""
    in_steps: bool
    calls: int
    steps: int | None
    """Measured steps that have it; null outside steps."""
    per_step_ms: Spread | None
    """Its time summed within each step that has it; null outside steps."""
    total_ms: float
