"""What is missing or odd in a window, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.trace.torch_trace.split import Frame
from trainscope.trace.window import Window

__all__ = ["LeftOut", "problems"]

_Mask = NDArray[np.bool_]

_LAUNCHES = (
    *("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel"),
    *("cudaMemcpyAsync", "cudaMemsetAsync", "hipLaunchKernel"),
)
_OF_ONE_OP = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel")
_CAPTURE_BEGINS, _CAPTURE_ENDS = "cudaStreamBeginCapture", "cudaStreamEndCapture"


@dataclass(frozen=True)
class LeftOut:
    """How many events of a kind are not in the window."""

    bad_times: int
    odd_syncs: int
    halves: int
    """Events written as a begin and an end."""


def problems(window: Window, frame: Frame, left_out: LeftOut) -> tuple[str, ...]:
    """Sentences, the worst first; empty for a whole trace."""
    return (
        *_of_the_file(frame),
        *_of_the_gpu(window),
        *_of_launches(window),
        *_of_events(frame, left_out),
    )


def _of_the_file(frame: Frame) -> Iterator[str]:
    if frame.cut_at_byte is not None:
        yield (
            f"the file ends in the middle, at byte {frame.cut_at_byte}: what comes after is "
            "missing, and GPU work stands at the end of such files"
        )
    if frame.is_head_damaged:
        yield "what stands around the events is damaged: names of GPUs and the date may be missing"


def _of_the_gpu(window: Window) -> Iterator[str]:
    if len(window.gpu):
        return
    if len(window.calls):
        yield (
            f"{_count(len(window.calls), 'CUDA call')} and no GPU work: was another profiler "
            "attached, or only the CPU recorded?"
        )
    elif len(window.ops) or len(window.ranges) or len(window.frames):
        yield "no CUDA calls and no GPU work: only the CPU was recorded"
    else:
        yield "no operator, no CUDA call and no GPU work in it"


def _of_launches(window: Window) -> Iterator[str]:
    gpu, calls = window.gpu, window.calls
    launched = calls.correlation[calls.correlation >= 0]
    if not len(gpu):
        return
    alone = gpu.correlation[~np.isin(gpu.correlation, launched)]
    first = int(launched.min()) if len(launched) else 0
    unknown = int((alone < 0).sum())
    before = int(((alone >= 0) & (alone < first)).sum())  # ids count upwards
    lost = len(alone) - unknown - before
    of_all = f"of {_count(len(gpu), 'GPU op')}"
    if lost:
        yield f"{lost} {of_all} {_have(lost)} no launch in the trace: the profiler lost it"
    if unknown:
        yield (
            f"{unknown} {of_all} {_have(unknown)} no correlation id, so what launched "
            f"{'it' if unknown == 1 else 'them'} is not known"
        )
    if before:
        yield f"{before} {of_all} {_have(before)} no launch in the trace: it came before the window"
    launches = _named(window, _LAUNCHES) & ~_captured(window)
    missing = int((~np.isin(calls.correlation[launches], gpu.correlation)).sum())
    if missing:
        yield (
            f"{missing} of {_count(int(launches.sum()), 'launch', 'launches')} {_have(missing)} no "
            "GPU work in the trace: the profiler lost it, or it ran after the window"
        )
    yield from _shared(window, launched)


def _shared(window: Window, launched: np.ndarray) -> Iterator[str]:
    repeated = len(launched) - len(np.unique(launched))
    if repeated:
        yield (
            f"{_count(repeated, 'CUDA call')} {'shares' if repeated == 1 else 'share'} a "
            "correlation id with another, so whose GPU work is whose is not sure"
        )
    single = window.calls.correlation[_named(window, _OF_ONE_OP)]
    ops = window.gpu.correlation[np.isin(window.gpu.correlation, single[single >= 0])]
    extra = len(ops) - len(np.unique(ops))
    if extra:
        yield (
            f"{_count(extra, 'GPU op')} {'shares' if extra == 1 else 'share'} a launch of a single "
            "kernel with another, so which one it launched is not sure"
        )


def _of_events(frame: Frame, left_out: LeftOut) -> Iterator[str]:
    if frame.malformed:
        yield (
            f"{_count(frame.malformed, 'event')} {_are(frame.malformed)} malformed and left out, "
            f"the first after byte {frame.malformed_near_byte}"
        )
    if left_out.bad_times:
        yield (
            f"{_count(left_out.bad_times, 'event')} {_have(left_out.bad_times)} no possible time "
            f"or a negative duration and {_are(left_out.bad_times)} left out"
        )
    if left_out.halves:
        yield (
            f"{_count(left_out.halves, 'event')} {_are(left_out.halves)} written as a begin or an "
            f"end, which torch.profiler does not do, and {_are(left_out.halves)} left out"
        )
    if left_out.odd_syncs:
        yield (
            f"{_count(left_out.odd_syncs, 'record')} of waits {_are(left_out.odd_syncs)} of a kind "
            f"that is not known and {_are(left_out.odd_syncs)} left out"
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


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
