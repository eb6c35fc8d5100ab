"""A window captured by nsys: its capture range is opened and closed from here."""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["NsysWindow", "under_nsys"]


def under_nsys(environ: Mapping[str, str]) -> bool:
    """Whether nsys profiles this process; torch.profiler would then get no GPU activity."""
    return "NSYS_PROFILING_SESSION_ID" in environ


class NsysWindow:
    """Opens nsys's capture range; the report file is nsys's own.

    Without ``--capture-range=cudaProfilerApi`` nsys takes no notice of it. Without a GPU there is
    no CUDA runtime to call, so nothing is opened.
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
        return self._cuda

    def cancel(self) -> None:
        """Nothing has begun before ``start``."""

    def missing(self) -> tuple[str, ...]:
        """What this window lacks, in words."""
        if self._cuda:
            return ()
        return ("GPU activity: no CUDA device, so nsys's capture range is never opened",)
