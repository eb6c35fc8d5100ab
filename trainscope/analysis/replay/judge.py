"""Whether a replay may be believed: the reasons why nothing can be said."""

from __future__ import annotations

from typing import NamedTuple

from trainscope.analysis.replay.program import Program
from trainscope.trace.plural import count

__all__ = ["MAX_BAND", "WhyNot", "drift_in_words", "is_shared", "why_not"]

MAX_DRIFT = 0.03
"""Of the CPU time of the recorded steps, replayed once as recorded."""
MAX_MISS = 0.05
"""Of the calibrated replay from the measured step time."""
MAX_BAND = 0.12
"""Width of the band of a speedup, in parts of it."""
MIN_OVER_GPU = 0.95
"""A measured step shorter than this share of the GPU work in it was not measured on this loop."""
MAX_UNFOLLOWED = 0.03
"""Share of the recorded time that GPU work may take which the replay knows no launch of."""
MIN_STEPS = 2
MIN_LATE_SHARE = 0.05
"""Of the kernels that no own work held up: where so many began late, the GPU is shared."""


class WhyNot(NamedTuple):
    """A reason why nothing can be said."""

    words: str
    drifted: bool = False
    """The recorded steps do not come out as they were, and the words say how far off."""


def why_not(
    program: Program,
    *,
    drift: float,
    measured_step_ns: float | None,
    replayed_step_ns: float,
    band: tuple[float, float],
) -> WhyNot | None:
    """The first reason that holds; None where the replay may be believed."""
    if program.steps < MIN_STEPS:
        return WhyNot(f"the window has {program.steps} whole step, and a replay needs two or more")
    if program.unresolved:
        waits = count(program.unresolved, "wait")
        which = "is" if program.unresolved == 1 else "are"
        return WhyNot(
            f"{waits} of a stream for an event {which} not resolved: the trace does not tell which "
            "stream the event is of"
        )
    if program.unfollowed_ns > MAX_UNFOLLOWED * program.recorded_ns:
        share = program.unfollowed_ns / program.recorded_ns
        return WhyNot(
            f"GPU work of {share:.0%} of the time was launched by threads other than the training "
            "loop's, or its launch is not in the trace"
        )
    if abs(drift) > MAX_DRIFT:
        why = _sharing(program) or "so something in them is not understood"
        return WhyNot(f"{drift_in_words(drift)}, {why}", drifted=True)
    if measured_step_ns is not None:
        gpu_ns = program.gpu_ns / program.steps
        if measured_step_ns < MIN_OVER_GPU * gpu_ns:
            return WhyNot(
                f"the step time given, {measured_step_ns / 1e6:.3g} ms, is less than the GPU work "
                f"of a step, {gpu_ns / 1e6:.3g} ms: it is of another loop or machine"
            )
        miss = replayed_step_ns / measured_step_ns - 1.0
        if abs(miss) > MAX_MISS:
            return WhyNot(
                f"whatever the profiler is taken to cost, the replayed step is {_off(miss)} than "
                "the measured one" + (_sharing(program) and f", {_sharing(program)}")
            )
    low, high = band
    if high / low - 1.0 > MAX_BAND:
        words = (
            ""
            if measured_step_ns is not None
            else "; the step time without a profiler (--step-ms) would narrow it"
        )
        return WhyNot(f"the speedup may be anything from {low:.2f}x to {high:.2f}x{words}")
    return None


def drift_in_words(drift: float) -> str:
    """How far the steps, replayed once as they were recorded, are off."""
    return f"replayed as recorded the steps come out {_off(drift)} than they were"


def _off(share: float) -> str:
    return f"{abs(share):.1%} {'longer' if share > 0 else 'shorter'}"


def is_shared(program: Program) -> bool:
    """Whether something else than this process was using the GPU in the window."""
    return program.late_share >= MIN_LATE_SHARE


def _sharing(program: Program) -> str:
    """Why a replay of a shared GPU does not come out; empty where it was not shared."""
    if not is_shared(program):
        return ""
    return (
        f"for something else was using the GPU: {program.late_share:.0%} of the kernels that "
        "nothing of this process held up began 50 µs or more after their launch"
    )
