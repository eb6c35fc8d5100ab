"""What a benchmark gives back, as data: frozen, and as JSON with ``model_dump_json``.

A number that is not known is null, never 0. A number's unit is what its name ends in.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "BENCH_SCHEMA_VERSION",
    "Agreement",
    "Cache",
    "Comparison",
    "Environment",
    "Flag",
    "FlagCode",
    "GpuState",
    "Measurement",
    "Ratio",
    "Roofline",
    "Scaling",
    "ScalingPoint",
    "Spread",
    "WarmUp",
]

BENCH_SCHEMA_VERSION = 1

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


class Measurement(Result):
    """One function's time. ``time`` is None where it was refused; ``refused`` says why."""

    schema_version: int = BENCH_SCHEMA_VERSION
    name: str
    timer: Literal["cuda-events", "perf_counter"]
    cache: Cache
    calls_per_trial: int
    time: Spread | None
    """One call: GPU time where the timer is cuda-events, with its launches queued ahead."""
    wall: Spread | None = None
    """One call by the host's clock, from an idle device to an idle device."""
    cpu_us: float | None = None
    """Until one call returned, median: what a clock without a sync would have said."""
    first_call_us: float | None = None
    """One call, no warm-up, no sync: what a naive benchmark claims."""
    memory_peak_bytes: int | None = None
    """Above what was allocated before the call; None on the CPU, where nobody counts it."""
    warm_up: WarmUp | None = None
    agreement: Agreement | None = None
    """None where there was no reference to agree with."""
    roofline: Roofline | None = None
    of_copy: Ratio | None = None
    """Share of a plain copy of the same bytes, timed in the same rounds."""
    ratio: Ratio | None = None
    state: GpuState | None = None
    flags: tuple[Flag, ...] = ()
    refused: str | None = None
    environment: Environment

    def __str__(self) -> str:
        """The measurement as text."""
        from trainscope.bench.table import text_of

        return text_of(self)


class Comparison(Result):
    """Functions timed in turn on the same inputs."""

    schema_version: int = BENCH_SCHEMA_VERSION
    name: str
    reference: str
    baseline: str
    bytes_moved: int | None
    flops: int | None
    rows: tuple[Measurement, ...]
    copy_of_bytes: Measurement | None = None
    """A plain copy that moves the same bytes, in the same rounds."""
    environment: Environment

    def __getitem__(self, name: str) -> Measurement:
        """The measurement of that name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name!r}: this comparison has {', '.join(row.name for row in self.rows)}")

    def __str__(self) -> str:
        """The comparison as a table."""
        from trainscope.bench.table import text_of

        return text_of(self)


class ScalingPoint(Result):
    """One size, its work and its time as multiples of the smallest's."""

    size: float
    work: float
    time: float
    median_us: float


class Scaling(Result):
    """Whether time grows as the work does."""

    schema_version: int = BENCH_SCHEMA_VERSION
    linear: bool
    verdict: str
    fixed_us: float
    """Time at no work at all, by a straight line through the points."""
    points: tuple[ScalingPoint, ...]
    flags: tuple[Flag, ...] = ()
    environment: Environment

    def __str__(self) -> str:
        """The points as a table."""
        from trainscope.bench.table import text_of

        return text_of(self)
