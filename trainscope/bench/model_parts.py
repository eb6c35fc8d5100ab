"""The parts of a benchmark's result, as data.

A number that is not known is null, never 0. A number's unit is what its name ends in.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "Agreement",
    "Cache",
    "Environment",
    "Flag",
    "FlagCode",
    "GpuState",
    "Ratio",
    "Result",
    "Roofline",
    "Spread",
    "WarmUp",
]

Cache = Literal["cold", "warm"]
"""Whether the L2 cache is flushed before every call."""
FlagCode = Literal[
    "syncs",
    "other-stream",
    "dispatch-bound",
    "not-believable",
    "cache-resident",
    "near-timer-floor",
    "unsettled",
    "throttled",
    "changes-inputs",
]


class Result(BaseModel):
    """Frozen, and a key that a later version added is no fault."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Spread(Result):
    """How the trials' times lie; each is the time of one call."""

    trials: int
    mean_us: float
    mean_ci95_us: tuple[float, float]
    """Of the mean: percentile bootstrap."""
    median_us: float
    p10_us: float
    p90_us: float
    min_us: float


class WarmUp(Result):
    """What ran before the first trial."""

    calls: int
    spent_ms: float
    settled: bool
    """Whether the last windows agreed before the time for it was up."""


class Flag(Result):
    """One reason to read the time with care."""

    code: FlagCode
    text: str


class Agreement(Result):
    """Whether an output is what the reference gives, and by which rule."""

    ok: bool
    rule: Literal["float64", "tolerance", "exact", "none"]
    """``none``: the outputs could not be compared, and ``reason`` says why."""
    error: float | None = None
    """Largest absolute error, of the output where it comes nearest to what is allowed."""
    allowed: float | None = None
    reason: str | None = None
    """Why it is refused, or why the float64 rule could not be used."""


class Roofline(Result):
    """A time against what the measured ceilings of this device allow."""

    bound: Literal["memory", "compute"]
    least_us: float
    """No call can take less at these ceilings."""
    share: float
    """Of the ceiling that binds: 1 is the ceiling."""
    gb_s: float | None
    tflop_s: float | None


class GpuState(Result):
    """Clocks, heat and power while the function ran, from ``nvidia-smi``."""

    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    throttled_by: tuple[str, ...]


class Environment(Result):
    """Where and when it was measured."""

    device: str
    cuda: str | None
    driver: str | None
    torch: str
    triton: str | None
    trainscope: str
    python: str
    platform: str
    threads: int
    """CPU threads of torch."""
    date: str
    """ISO 8601, UTC."""


class Ratio(Result):
    """How many times faster than the baseline: its median over ours, from the same rounds."""

    to: str
    value: float
    low: float
    high: float
    """``low`` and ``high``: 95 %, bootstrap over the rounds."""
