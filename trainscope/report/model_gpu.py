"""The GPU's part of a report's schema: what a captured window tells about it."""

from __future__ import annotations

from pydantic import Field

from trainscope.report.model_times import Part, Spread

__all__ = [
    "ChainReport",
    "CommunicationReport",
    "CopyReport",
    "DeviceReport",
    "GpuReport",
    "IdleDetail",
    "KernelReport",
    "LaunchReport",
    "OperatorReport",
    "PhaseReport",
    "WindowSyncReport",
]


class DeviceReport(Part):
    """Busy and idle time of one GPU, in ms per step."""

    device: int
    name: str | None
    busy_ms_per_step: float
    idle_ms_per_step: float


class IdleDetail(Part):
    """One cause of idle time, finer than ``idle.causes`` and in words."""

    cause: str
    words: str
    ms_per_step: float


class PhaseReport(Part):
    """One phase in the window's steps, which profiling slows on the CPU."""

    name: str
    cpu_ms_per_step: Spread
    gpu_ms_per_step: Spread
    """Time in which a GPU ran what the phase enqueued, whenever that was."""
    steps: int
    """Steps of the window that have it; the spreads are over these."""
    share: float | None
    """Of the steps' CPU time."""


class WindowSyncReport(Part):
    """One place that waits, as the window shows it."""

    place: str
    kind: str
    code: str | None
    file: str | None
    line: int | None
    line_is: str
    """``wait``: the line that waits. ``function``: the first line of its function. ``running``:
    where its function stood when recording began. Empty without a line."""
    phase: str | None
    thread: str
    waits: int
    per_step: float | None
    did_not_block: int
    """Waits that returned at once."""
    blocked_ms_total: float
    idle_ms_per_step: float | None
    """GPU idle time that it is to blame for; null outside steps."""
    gain_ms_per_step: float | None = None
    """How much shorter a step is without this one alone, replayed; null where that is not known."""
    advice: str = ""


class KernelReport(Part):
    """One kernel as one operator called it with inputs of one shape."""

    name: str
    shape: str | None
    count: int
    ms_total: float
    us_median: float


class OperatorReport(Part):
    """The kernels of one operator in the window."""

    operator: str
    count: int
    ms_total: float
    share: float
    """Of the time of all kernels."""
    kernels: list[KernelReport]
    """Those with most time."""
    kernels_left_out: int
    kernel_by_shape: list[tuple[str, str]] = Field(default_factory=list)
    """Shape and kernel, where it picks different kernels for different shapes."""


class ChainReport(Part):
    """Tiny kernels launched one after the other."""

    operators: str
    inside: str | None
    kernels: int
    """In one chain."""
    times: int
    gpu_ms_total: float
    advice: str


class LaunchReport(Part):
    """What launching costs, and how far the CPU is ahead."""

    launches: int
    lost: int = 0
    """GPU ops whose launch the profiler lost: what the CPU did then is not known."""
    kernels: int
    tiny_kernels: int
    tiny_below_us: float
    tiny_share: float | None
    launch_share: float | None
    """Of the steps' CPU time, spent in calls that enqueue."""
    cpu_lead_ms_median: float | None
    """Long: the CPU is ahead of the GPU."""
    queue_deepest: int
    queue_empty_share: float | None
    """Share of time in which nothing waited for the GPU: the CPU was not ahead."""
    chains: list[ChainReport]


class CopyReport(Part):
    """Copies of one direction and host memory, or memsets."""

    what: str
    host_memory: str | None
    count: int
    ms_total: float
    bytes_moved: int | None
    gb_per_s: float | None
    alone_ms_total: float
    """Time in which the GPU ran nothing else."""


class CommunicationReport(Part):
    """Collectives of one GPU; their time holds the wait for the other ranks."""

    device: int
    count: int
    ms_total: float
    hidden_ms_total: float
    """While another kernel was running."""
    exposed_ms_total: float
    by_collective: list[tuple[str, int, float]]
    """Name, count and ms."""


class GpuReport(Part):
    """What one captured window tells about the GPU; totals are of the window."""

    file: str
    source: str
    steps: list[int]
    """Numbers of its steps; empty where it has none."""
    steps_found_by: str
    """What was taken for a step; why there is none, where there is none."""
    steps_counted: int
    """Steps that the numbers per step are a mean of: all but the first, where there are more, since
    it starts with nothing in the queue."""
    devices: list[DeviceReport]
    idle: list[IdleDetail]
    phases: list[PhaseReport] = Field(default_factory=list)
    """In the order of a step."""
    first_launch_ms: float | None = None
    """CPU time from the begin of a step to its first launch, the median; null without steps."""
    syncs: list[WindowSyncReport]
    operators: list[OperatorReport]
    operators_left_out: int
    launches: LaunchReport
    copies: list[CopyReport]
    communication: list[CommunicationReport]
    problems: list[str]
    """What the window lacks or had to be left out, the worst first."""
    incomplete: list[str] = Field(default_factory=list)
    """Those of ``problems`` that make the numbers of its steps doubtful."""
