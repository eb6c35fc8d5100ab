"""A window captured by nsys: its capture range is opened and closed from here."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import torch

from trainscope.notice import say

__all__ = ["SETTLE_S", "NsysWindow", "leave_time", "under_nsys"]

SETTLE_S = 5.0
"""From the end of the range to that of the program: nsys 2023.4 hung where a loop of 40 steps
ended right behind its window (on an H200), and not where 2,000 steps were to come."""


def under_nsys(environ: Mapping[str, str]) -> bool:
    """Whether nsys profiles this process; torch.profiler would then get no GPU activity."""
    return "NSYS_PROFILING_SESSION_ID" in environ


def leave_time(
    ended_s: float,
    pid: int,
    *,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Hold the end of the program back until nsys has had its time; not in a forked child."""
    rest_s = ended_s + SETTLE_S - clock_s()
    if rest_s <= 0 or os.getpid() != pid:
        return
    say(f"trainscope: the program ends in {rest_s:.0f} s, once nsys is done with the window")
    with suppress(KeyboardInterrupt):  # then it ends at once
        sleep(rest_s)


class NsysWindow:
    """Opens nsys's capture range; the report file is nsys's own.

    Without ``--capture-range=cudaProfilerApi`` nsys takes no notice of it. Without a GPU there is
    no CUDA runtime to call, so nothing is opened. A program that ends right behind the range is
    held back until ``SETTLE_S`` have passed, so that nsys is done with the one end at the other.
    """

    kind = "nsys"
    records_here = False
    """Whether ``record_function`` ranges show in this window; NVTX ranges show in any case."""

    def __init__(self) -> None:
        self._cuda = torch.cuda.is_available()

    def prepare(self) -> None:
        """Nothing: nsys has warmed up when the program began."""

    def start(self) -> None:
        """Open the range."""
        if self._cuda:
            torch.cuda.profiler.start()

    def stop(self) -> bool:
        """Close the range; returns whether there is one."""
        if self._cuda:
            # nsys drops work that is still queued when the range ends; the window is over
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
            atexit.register(leave_time, time.monotonic(), os.getpid())
        return self._cuda

    def cancel(self) -> None:
        """Nothing has begun before ``start``."""

    def why_it_stays(self) -> str:
        """nsys is there from the beginning: the steps before a window are no faster."""
        return ""

    def missing(self) -> tuple[str, ...]:
        """What this window lacks, in words."""
        if self._cuda:
            return ()
        return ("GPU activity: no CUDA device, so nsys's capture range is never opened",)
