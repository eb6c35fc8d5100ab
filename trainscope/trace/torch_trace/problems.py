"""What is missing or odd in a window, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainscope.trace.window import Window

__all__ = ["problems"]

_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync")


def problems(
    window: Window, *, cut_at_byte: int | None, malformed: int, bad_times: int, odd_syncs: int
) -> tuple[str, ...]:
    """Sentences, the worst first; empty for a whole trace."""
    return tuple(_all(window, cut_at_byte, malformed, bad_times, odd_syncs))


def _all(
    window: Window, cut_at_byte: int | None, malformed: int, bad_times: int, odd_syncs: int
) -> Iterator[str]:
    if cut_at_byte is not None:
        yield (
            f"the file ends in the middle, at byte {cut_at_byte}: what comes after is missing, "
            "and GPU work stands at the end of such files"
        )
    if not len(window.gpu):
        if len(window.calls):
            yield (
                f"{len(window.calls)} CUDA calls and no GPU work: was another profiler attached, "
                "or only the CPU recorded?"
            )
        elif len(window.ops) or len(window.ranges) or len(window.frames):
            yield "no CUDA calls and no GPU work: only the CPU was recorded"
        else:
            yield "no operator, no CUDA call and no GPU work in it"
    yield from _orphans(window)
    if malformed:
        yield f"{malformed} events are malformed and left out"
    if bad_times:
        yield f"{bad_times} events have no possible time or a negative duration and are left out"
    if odd_syncs:
        yield f"{odd_syncs} records of waits are of a kind that is not known and are left out"


def _orphans(window: Window) -> Iterator[str]:
    gpu, calls = window.gpu, window.calls
    launched = calls.correlation[calls.correlation >= 0]
    if len(gpu):
        lost = int((~np.isin(gpu.correlation, launched)).sum())
        if lost:
            yield (
                f"{lost} of {len(gpu)} GPU ops have no launch in the trace: "
                "it came before the window"
            )
        launches = _launches(window)
        missing = int((~np.isin(calls.correlation[launches], gpu.correlation)).sum())
        if missing:
            yield (
                f"{missing} of {int(launches.sum())} launches have no GPU work in the trace: the "
                "profiler lost it, or it ran after the window"
            )
    repeated = len(launched) - len(np.unique(launched))
    if repeated:
        yield (
            f"{repeated} CUDA calls share a correlation id with another, "
            "so whose GPU work is whose is not sure"
        )


def _launches(window: Window) -> np.ndarray:
    """Calls that must have GPU work: kernels, copies and memsets put into a stream."""
    is_launch = np.array([name.startswith(_LAUNCHES) for name in window.names], dtype=bool)
    if not len(window.names):
        return np.zeros(len(window.calls), dtype=bool)
    return is_launch[window.calls.name_id]
