"""The schema of a report (version 1): what ``--format json`` prints and renderers read.

A number that is not known is null, never 0. Times are in the unit that their name ends in.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainscope.report.model_gpu import GpuReport
from trainscope.report.model_times import (
    LeftOut,
    LongSteps,
    Part,
    Phase,
    RangeReport,
    Spread,
    StepsReport,
)

__all__ = [
    "REPORT_SCHEMA_VERSION",
    "Baseline",
    "CaptureReport",
    "DetectorReport",
    "Finding",
    "GpuReport",
    "IdleCause",
    "IdleReport",
    "LeftOut",
    "LongSteps",
    "MetricsReport",
    "Overhead",
    "Phase",
    "RangeReport",
    "RankSteps",
    "RankSync",
    "RanksReport",
    "Removal",
    "Report",
    "RunReport",
    "SinkReport",
    "Spread",
    "StepsReport",
    "Sync",
    "WhatIf",
]

REPORT_SCHEMA_VERSION = 1


class RunReport(Part):
    """Which run this is."""

    dir: str
    rank: int
    world_size: int
    device: str | None
    torch: str | None
    trainscope: str | None
    dry_run: bool
    source: str


class Sync(Part):
    """One line that waits in one way, on one thread and in one ``during``.

    A trace without a recording knows the line's function where it has stacks, and never its source.
    """

    code: str | None
    kind: str
    explicit: bool
    allowed: str | None
    place: str | None = None
    """Where it is, in the words of ``what_if.removals`` and ``findings``."""
    file: str | None
    line: int | None
    line_is: str = "wait"
    """``wait``: the line that waits. ``function``: the first line of its function. ``running``:
    where its function stood when recording began. Empty without a line."""
    function: str | None
    source: str | None
    caller: str | None = None
    """The most frequent one."""
    callers: int | None = None
    """Distinct callers seen."""
    via: str | None
    """The library frame that made most of the waits."""
    vias: dict[str, int] = Field(default_factory=dict)
    """The waits of each library frame, most frequent first; empty where one, or none, made all."""
    phase: str | None
    """That of most of the waits."""
    thread: str
    during: str | None
    count: int
    """In the run; in the window of a trace without a recording."""
    per_step: float | None
    """Waits per step; null outside training steps."""
    steps: int | None = None
    """Distinct steps it was seen in; null where that is not known."""
    timed: int | None = None
    """How many of ``count`` the blocked times are known of."""
    blocked_ms_total: float | None
    blocked_ms_median: float | None
    gain_ms_per_step: float | None
    advice: str
    no_gpu_branch: bool = False
    """Seen in a dry run, on a line that a machine with a GPU does not run."""


IdleCause = Literal["sync", "launch", "data", "copy", "communication", "other"]


class IdleReport(Part):
    """GPU idle time, from a captured window; ``causes`` in ms per step."""

    per_step_ms: float
    causes: dict[IdleCause, float]


class Baseline(Part):
    """How well the replay reproduces the step it was recorded from."""

    measured_step_ms: float | None
    """With no profiler on; null where it is not known."""
    measured_wait_ms: float | None = None
    """In a step, at the places timed with no profiler on, which the replay was weighed by too; null
    where there is none."""
    replayed_step_ms: float
    drift: float
    """Of the recorded steps replayed once as recorded: that it is small shows that the window was
    read right, not that the forecast is."""
    calibrated: bool
    """Whether what the profiler cost was weighed by ``measured_step_ms``."""


class Removal(Part):
    """The step as replayed without some sites."""

    sites: Literal["all"] | list[str]
    step_ms: float
    speedup: float
    band: tuple[float, float] | None = None
    """10th and 90th percentile of the speedup over what the profiler may have cost, in uneven steps
    the widest of theirs and of the shorter and longer quartile's."""
    replaced_by: list[str] = Field(default_factory=list)
    """What stands in the place of the syncs."""


class WhatIf(Part):
    """What removing syncs would gain; ``cannot_tell`` says why where nothing can be said."""

    baseline: Baseline | None
    removals: list[Removal]
    """All together first, each alone, then the smallest set that keeps most of the gain."""
    cannot_tell: str | None
    drifted: bool = False
    """``cannot_tell`` is that ``baseline.drift`` is too large, and says how large."""
    kept: list[str] = Field(default_factory=list)
    """Sites that the program needs, which are in no removal."""
    assumptions: list[str] = Field(default_factory=list)


class Finding(Part):
    """One diagnosed problem, most costly first."""

    code: str
    title: str
    site: str | None
    gain_ms_per_step: float | None
    evidence: str
    advice: str
    snippet: str | None = None
    """Lines of Python that show what to write instead, with made-up names."""


class DetectorReport(Part):
    """How far the detector could see."""

    mode: str | None = None
    armed_steps: int
    disarmed: list[str]
    cannot_see: list[str]
    races: list[Sync] = Field(default_factory=list)
    """Reads of a value whose copy may not have landed; seen in a dry run only."""


class Overhead(Part):
    """CPU time of trainscope on the loop's thread: its steps, ranges and log calls.

    A lower bound: hooks, the timing of waits and background threads come on top.
    """

    per_step_us: float
    share: float | None


class CaptureReport(Part):
    """What the schedule captured."""

    windows: int
    complete: bool
    missing: list[str]
    files: list[str] = Field(default_factory=list)
    """The traces, as paths in the run directory."""


class SinkReport(Part):
    """What became of the records handed to one sink."""

    name: str
    written: int
    dropped: int
    disabled: bool
    error: str | None
    note: str | None


class MetricsReport(Part):
    """What became of the ``scope.log`` calls."""

    logged: int
    written: int
    dropped: int
    nonfinite: list[str]
    """The first ones, as ``loss = nan at step 12``."""
    nonfinite_count: int
    sinks: list[SinkReport]


class RankSteps(Part):
    """One rank's steps."""

    rank: int
    steps: int
    step_ms_median: float | None


class RankSync(Part):
    """One line that waits, over all ranks."""

    site: str
    kind: str
    ranks: list[int]
    count: int
    blocked_ms_total: float | None


class RanksReport(Part):
    """The ranks of a run beside each other."""

    missing: list[int]
    """Ranks of the launch that wrote nothing."""
    per_rank: list[RankSteps]
    slowest: int | None
    slowest_over_median: float | None
    """Its median step over the median of the ranks' medians."""
    syncs: list[RankSync]


class Report(Part):
    """What a run did, and what to do about it."""

    schema_version: Literal[1] = REPORT_SCHEMA_VERSION
    run: RunReport
    verdict: str
    steps: StepsReport
    phases: list[Phase]
    ranges: list[RangeReport] = Field(default_factory=list)
    """Those inside phases and outside steps, most time first."""
    ranges_left_out: int = 0
    """Further names, each of less time."""
    syncs: list[Sync]
    """The lines to look at, worst first, then the others, longest wait first: as the detector saw
    them, or for a trace without a recording as its window shows them."""
    idle: IdleReport | None
    gpu: GpuReport | None = None
    """From the captured window with most GPU work; null without one."""
    what_if: WhatIf | None
    findings: list[Finding]
    detector: DetectorReport | None
    overhead: Overhead | None
    capture: CaptureReport | None
    metrics: MetricsReport | None = None
    ranks: RanksReport | None = None
    not_seen: list[str] = Field(default_factory=list)
    """Models and calls that the hooks could not follow."""
    notes: list[str] = Field(default_factory=list)
    """What is missing or damaged in the files."""

    def __str__(self) -> str:
        """The report as text without colour, as wide as the terminal; 80 where it is none."""
        from trainscope.report.text import render

        return render(self)

    __repr__ = __str__  # what a prompt, or a cell that ends in it, shows
