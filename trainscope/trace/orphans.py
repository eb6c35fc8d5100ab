"""GPU work without its launch, and launches without their GPU work, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainscope.trace.plural import count, have
from trainscope.trace.window import Window

__all__ = ["lost_launches", "orphans"]

_Mask = NDArray[np.bool_]

_LAUNCHES = (
    *("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel"),
    *("cudaMemcpyAsync", "cudaMemsetAsync", "hipLaunchKernel"),
)
_OF_ONE_OP = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel")
_CAPTURE_BEGINS, _CAPTURE_ENDS = "cudaStreamBeginCapture", "cudaStreamEndCapture"


def orphans(window: Window) -> Iterator[str]:
    """A sentence for each kind of what does not belong together; none without GPU work."""
    gpu, calls = window.gpu, window.calls
    launched = calls.correlation[calls.correlation >= 0]
    if not len(gpu):
        return
    alone = gpu.correlation[~np.isin(gpu.correlation, launched)]
    unknown = int((alone < 0).sum())
    lost = lost_launches(window)
    before = len(alone) - unknown - lost
    of_all = f"of {count(len(gpu), 'GPU op')}"
    if lost:
        yield f"{lost} {of_all} {have(lost)} no launch in the trace: the profiler lost it"
    if unknown:
        yield (
            f"{unknown} {of_all} {have(unknown)} no correlation id, so what launched "
            f"{'it' if unknown == 1 else 'them'} is not known"
        )
    if before:
        yield f"{before} {of_all} {have(before)} no launch in the trace: it came before the window"
    launches = _named(window, _LAUNCHES) & ~_captured(window)
    missing = int((~np.isin(calls.correlation[launches], gpu.correlation)).sum())
    if missing:
        yield (
            f"{missing} of {count(int(launches.sum()), 'launch', 'launches')} {have(missing)} no "
            "GPU work in the trace: the profiler lost it, or it ran after the window"
        )
    yield from _shared(window, launched)


def lost_launches(window: Window) -> int:
    """How many GPU ops have no launch in the trace that came after its first call."""
    launched = window.calls.correlation[window.calls.correlation >= 0]
    first = int(launched.min()) if len(launched) else 0
    alone = window.gpu.correlation[~np.isin(window.gpu.correlation, launched)]
    return int((alone >= first).sum())  # ids count upwards


def _shared(window: Window, launched: np.ndarray) -> Iterator[str]:
    repeated = len(launched) - len(np.unique(launched))
    if repeated:
        yield (
            f"{count(repeated, 'CUDA call')} {'shares' if repeated == 1 else 'share'} a "
            "correlation id with another, so whose GPU work is whose is not sure"
        )
    single = window.calls.correlation[_named(window, _OF_ONE_OP)]
    ops = window.gpu.correlation[np.isin(window.gpu.correlation, single[single >= 0])]
    extra = len(ops) - len(np.unique(ops))
    if extra:
        yield (
            f"{count(extra, 'GPU op')} {'shares' if extra == 1 else 'share'} a launch of a single "
            "kernel with another, so which one it launched is not sure"
        )


def _named(window: Window, beginnings: tuple[str, ...]) -> _Mask:
    """The calls whose names begin so."""
    if not len(window.calls):
        return np.zeros(0, dtype=bool)
    is_such = np.array([name.startswith(beginnings) for name in window.names], dtype=bool)
    return is_such[window.calls.name_id]


def _captured(window: Window) -> _Mask:
    """The calls made while a CUDA graph was being captured, which launch nothing."""
    calls = window.calls
    steps = np.zeros(len(calls), dtype=np.int64)
    steps[_named(window, (_CAPTURE_BEGINS,))] = 1
    steps[_named(window, (_CAPTURE_ENDS,))] = -1
    if not steps.any():
        return np.zeros(len(calls), dtype=bool)
    inside = np.zeros(len(calls), dtype=bool)
    for thread in np.unique(calls.thread[steps != 0]):
        own = calls.thread == thread
        depth = np.cumsum(steps[own])
        inside[own] = depth - min(0, int(depth.min())) > 0  # one begun before the window
    return inside
