"""What a benchmark gives back, as data: frozen, and as JSON with ``model_dump_json``.

A number that is not known is null, never 0. A number's unit is what its name ends in.
"""

from __future__ import annotations

from typing import Literal

from trainscope.bench.model_parts import (
    Agreement,
    Cache,
    Environment,
    Flag,
    FlagCode,
    GpuState,
    Ratio,
    Result,
    Roofline,
    Spread,
    WarmUp,
)

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
    """Until one call returned, warm: what a clock without a sync would have said."""
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

    __repr__ = __str__  # what a prompt, or a cell that ends in it, shows


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

    __repr__ = __str__  # what a prompt, or a cell that ends in it, shows


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

    __repr__ = __str__  # what a prompt, or a cell that ends in it, shows
