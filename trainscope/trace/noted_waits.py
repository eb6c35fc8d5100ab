"""Waits that the detector noted one by one, with their times, while a window was captured."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NotedWait"]


@dataclass(frozen=True)
class NotedWait:
    """One wait in a captured step: what ties a wait of the window to a line of code."""

    kind: str
    file: str
    line: int
    thread: str
    """As in ``SyncSite``."""
    end_ns: int
    """``time.perf_counter_ns()`` when the wait was over; of an untimed one, when it was told of."""
    blocked_ns: int
    """-1 for an untimed one, which is told of just before it waits."""
