"""What is missing or odd in a window, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainscope.trace.orphans import orphans
from trainscope.trace.plural import are, count, have
from trainscope.trace.torch_trace.split import Frame
from trainscope.trace.window import Window

__all__ = ["LeftOut", "problems"]


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
        *orphans(window),
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
            f"{count(len(window.calls), 'CUDA call')} and no GPU work: was another profiler "
            "attached, or only the CPU recorded?"
        )
    elif len(window.ops) or len(window.ranges) or len(window.frames):
        yield "no CUDA calls and no GPU work: only the CPU was recorded"
    else:
        yield "no operator, no CUDA call and no GPU work in it"


def _of_events(frame: Frame, left_out: LeftOut) -> Iterator[str]:
    if frame.malformed:
        yield (
            f"{count(frame.malformed, 'event')} {are(frame.malformed)} malformed and left out, "
            f"the first after byte {frame.malformed_near_byte}"
        )
    if left_out.bad_times:
        yield (
            f"{count(left_out.bad_times, 'event')} {have(left_out.bad_times)} no possible time "
            f"or duration and {are(left_out.bad_times)} left out"
        )
    if left_out.halves:
        yield (
            f"{count(left_out.halves, 'event')} {are(left_out.halves)} written as a begin or an "
            f"end, which torch.profiler does not do, and {are(left_out.halves)} left out"
        )
    if left_out.odd_syncs:
        yield (
            f"{count(left_out.odd_syncs, 'record')} of waits {are(left_out.odd_syncs)} of a kind "
            f"that is not known and {are(left_out.odd_syncs)} left out"
        )
