"""What is missing or odd in a recording of nsys, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainscope.trace.nsys.rows import LeftOut
from trainscope.trace.orphans import orphans
from trainscope.trace.plural import are, count, have
from trainscope.trace.window import Window

__all__ = ["problems"]


def problems(
    window: Window, left_out: LeftOut, *, version: str, others: int, process: str
) -> tuple[str, ...]:
    """Sentences, the worst first; empty for a whole recording of one process."""
    found = [*_without_gpu(window, version), *orphans(window), *_rows(left_out)]
    if others:
        also = "another process" if others == 1 else f"{others} other processes"
        found.append(f"{also} used CUDA too; this window is of {process} alone")
    return tuple(found)


def _without_gpu(window: Window, version: str) -> Iterator[str]:
    if len(window.gpu):
        return
    calls = count(len(window.calls), "CUDA call")
    if _work(window):
        yield (
            f"{calls} and no GPU work: nsys{version} may be older than the driver or than the "
            "CUDA of the program; record with a newer nsys"
        )
    elif len(window.calls):
        yield f"{calls}, none of which asks for GPU work"
    elif len(window.ranges) or len(window.ops):
        yield "no CUDA calls and no GPU work: record with --trace=cuda,nvtx, on a machine with GPU"
    else:
        yield "no NVTX range, no CUDA call and no GPU work in it: record with --trace=cuda,nvtx"


def _work(window: Window) -> bool:
    """Whether a call asked the GPU to do something."""
    asks = [i for i, name in enumerate(window.names) if "Launch" in name or "Mem" in name]
    return bool(np.isin(window.calls.name_id, asks).any())


def _rows(left_out: LeftOut) -> Iterator[str]:
    for table in left_out.no_times:
        yield f"the table {table} has no times and is left out"
    for number, one, many, what in (
        (left_out.malformed, "row", "", "no number where one belongs"),
        (left_out.bad_time, "row", "", "no possible time or duration"),
        (left_out.homeless, "row", "", "no word of which process it is"),
        (left_out.odd_syncs, "record of a wait", "records of waits", "a kind that is not known"),
        (left_out.unended, "range", "", "no end before the recording stopped"),
        (left_out.crossing, "range", "", "its begin in another of the thread and its end after it"),
    ):
        if number:
            yield f"{count(number, one, many)} {have(number)} {what} and {are(number)} left out"
