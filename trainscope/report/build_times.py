"""The times of a report: steps, phases and ranges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.ranges import RangeTimes
from trainscope.analysis.steps import LONG_OVER_MEDIAN, PhaseTimes, StepTimes
from trainscope.report.model import LeftOut, LongSteps, Phase, RangeReport, Spread, StepsReport
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.trace import Trace

__all__ = ["as_phase", "as_ranges", "as_steps", "spread_ms"]

_FIRST_LONG = 20
"""Numbers of long steps that a report names."""


def as_steps(trace: Trace, times: StepTimes) -> StepsReport:
    """How many steps, how they were counted, and how long the measured ones took."""
    return StepsReport(
        count=times.count,
        optimizer_steps=trace.counts.optimizer_steps,
        counted_by=trace.info.counted_by,
        wall_ms=spread_ms(times.duration_ns) if len(times.step) else None,
        left_out=LeftOut(
            warm_up=times.left_out_warm_up,
            captured=times.left_out_captured,
            slowed=times.left_out_slowed,
        ),
        long=_long(times),
    )


def as_phase(phase: PhaseTimes) -> Phase:
    """One phase over the measured steps."""
    return Phase(
        name=phase.name,
        per_step_ms=spread_ms(phase.per_step_ns),
        where="host",
        steps=len(phase.per_step_ns),
        share=phase.share,
    )


def as_ranges(ranges: Sequence[RangeTimes]) -> list[RangeReport]:
    """The ranges that are no phases, in their order."""
    return [
        RangeReport(
            name=each.name,
            depth=each.depth,
            inside=each.inside,
            in_steps=each.in_steps,
            calls=each.calls,
            steps=len(each.per_step_ns) if each.in_steps else None,
            per_step_ms=spread_ms(each.per_step_ns) if each.in_steps else None,
            total_ms=each.total_ns / NS_PER_MS,
        )
        for each in ranges
    ]


def _long(times: StepTimes) -> LongSteps | None:
    long = times.is_long
    count = int(long.sum())
    if not count:
        return None
    return LongSteps(
        over_median=LONG_OVER_MEDIAN,
        count=count,
        of=len(times.step),
        share=int(times.duration_ns[long].sum()) / int(times.duration_ns.sum()),
        first=times.step[long][:_FIRST_LONG].tolist(),
    )


def spread_ms(ns: NDArray[np.int64] | NDArray[np.float64]) -> Spread:
    """The spread of some times, of which there is at least one."""
    p10, median, p90 = (float(v) / NS_PER_MS for v in np.percentile(ns, (10, 50, 90)))
    return Spread(median=median, p10=p10, p90=p90)
