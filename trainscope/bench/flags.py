"""What must be said beside a time: pure, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainscope.bench.model import Flag, GpuState, Roofline, Spread
from trainscope.bench.time_text import time_text

__all__ = ["BELIEVABLE", "Seen", "flags_of", "leaves_work_behind"]

BELIEVABLE = 1.05
"""Times a measured ceiling; the ceilings themselves are good to a few percent."""
_LEFT_US = 30  # a sync with nothing to wait for takes up to ten microseconds
_LEFT_SHARE = 0.1
_FLOOR_SHARE = 0.1
_OVERHEAD_SHARE = 0.5


@dataclass(frozen=True)
class Seen:
    """What the flags of one function rest on. Times are of one call."""

    on_gpu: bool
    time: Spread
    cpu_us: float
    waits: bool
    left_behind_us: float
    wall_us: float
    floor_us: float
    settled: bool
    ops_us: float | None = None
    """On the CPU: what as many operations cost when they have nothing to compute."""
    roofline: Roofline | None = None
    bytes_moved: int | None = None
    last_level_bytes: int | None = None
    """Size of the cache that a warm call may read from."""
    state: GpuState | None = None


def leaves_work_behind(left_behind_us: float, wall_us: float) -> bool:
    """Whether other streams went on after the current stream was done, for longer than a sync."""
    return left_behind_us > _LEFT_US and left_behind_us > _LEFT_SHARE * wall_us


def flags_of(seen: Seen) -> tuple[Flag, ...]:
    """All flags, the gravest first."""
    return (*_honesty(seen), *_belief(seen), *_size(seen), *_steadiness(seen))


def _honesty(seen: Seen) -> Iterator[Flag]:
    if leaves_work_behind(seen.left_behind_us, seen.wall_us):
        yield Flag(
            code="other-stream",
            text=f"{time_text(seen.left_behind_us)} of its work ran on another stream after the "
            "current stream was done, so events do not see it: timed by the host's clock instead; "
            "make the current stream wait for that one",
        )
    if seen.waits:
        yield Flag(
            code="syncs",
            text="it waits for the GPU: the call returned only after the work queued before it; "
            "look for .item(), .cpu(), print or synchronize in it",
        )


def _belief(seen: Seen) -> Iterator[Flag]:
    roofline = seen.roofline
    if roofline is None or roofline.share <= BELIEVABLE:
        return
    fits = (
        roofline.bound == "memory"
        and seen.last_level_bytes is not None
        and (seen.bytes_moved or 0) <= 2 * seen.last_level_bytes
    )
    if fits:
        yield Flag(
            code="cache-resident",
            text=f"{roofline.share:.2f} of the memory ceiling: its data may stay in the cache "
            "between calls; time it on more data, or with cache='cold' on a GPU",
        )
        return
    ceiling = "memory" if roofline.bound == "memory" else "matmul"
    yield Flag(
        code="not-believable",
        text=f"{roofline.share:.2f} of the {ceiling} ceiling measured on this device: it does less "
        "than is claimed, or the bytes and FLOPs given are wrong",
    )


def _size(seen: Seen) -> Iterator[Flag]:
    time_us = seen.time.median_us
    if seen.on_gpu and not seen.waits and seen.cpu_us >= time_us:
        yield Flag(
            code="dispatch-bound",
            text=f"the CPU needs {time_text(seen.cpu_us)} to launch what the GPU does in "
            f"{time_text(time_us)}: in a loop of such calls dispatch is what is seen; time a "
            "larger input, or launch it from a CUDA graph",
        )
    if seen.ops_us is not None and seen.ops_us >= _OVERHEAD_SHARE * time_us:
        yield Flag(
            code="dispatch-bound",
            text=f"as many operations with nothing to compute take {time_text(seen.ops_us)}, "
            f"and it takes {time_text(time_us)}: dispatch is what is seen; time a larger input",
        )
    if seen.on_gpu and seen.floor_us > _FLOOR_SHARE * time_us:
        yield Flag(
            code="near-timer-floor",
            text=f"the timer says {time_text(seen.floor_us)} of a call that does nothing, and "
            f"{time_text(time_us)} of this one; time a larger input, or more calls with "
            "cache='warm'",
        )


def _steadiness(seen: Seen) -> Iterator[Flag]:
    if not seen.settled:
        yield Flag(
            code="unsettled",
            text="its time still moved by more than 10 % when the warm-up was over",
        )
    if seen.state is not None and seen.state.throttled_by:
        reasons = ", ".join(seen.state.throttled_by)
        yield Flag(code="throttled", text=f"the GPU had lowered its clocks: {reasons}")
