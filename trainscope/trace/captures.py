"""Which steps were captured, into which files, and what the captures lack."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CaptureState", "CaptureWindow"]


@dataclass(frozen=True)
class CaptureWindow:
    """One captured stretch; its steps ran slower than the others, so live times leave them out."""

    first_step: int
    """First step that was slowed down: that of the warm-up, where there is one."""
    first_active_step: int
    """First step in the trace."""
    last_step: int
    """Last step that ended inside the window."""
    file: str | None
    """Name of the trace in the rank's folder; None where nsys writes it, or where it was lost."""
    kind: str
    """``torch.profiler`` or ``nsys``."""
    complete: bool
    """False when it was cut short: by the loop's end, an exception, another profiler, a fault."""
    pause_ns: int
    """How long the loop stood still between two steps to start, stop and write the window."""
    bytes_written: int
    """Size of ``file``."""
    stays: str = ""
    """Why the profiler stayed in the process, and slowed the steps after the window; empty where it
    left."""


@dataclass(frozen=True)
class CaptureState:
    """What became of the schedule, so that "no trace" can be told from "nobody asked"."""

    windows: tuple[CaptureWindow, ...] = ()
    complete: bool = True
    """Every window that the schedule asked for was captured whole."""
    missing: tuple[str, ...] = ()
    """What the windows lack, in words: ``GPU activity: this machine has no CUDA device``."""
    note: str = ""
    """Why a window is not there or is incomplete, in words; empty when nothing is to be said."""
