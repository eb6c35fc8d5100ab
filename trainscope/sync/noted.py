"""Notes single waits with their times while a window is captured; outside windows nobody asks."""

from __future__ import annotations

from time import perf_counter_ns
from types import FrameType

from trainscope.sync.blame import blame
from trainscope.sync.site_counts import file_and_line
from trainscope.trace.noted_waits import NotedWait

__all__ = ["MAX_NOTED", "NotedWaits"]

MAX_NOTED = 20_000
"""Of more waits the first are kept: windows are short, and a hundred waits a step are many."""


class NotedWaits:
    """The waits of all windows so far; `note` may be called on any thread."""

    def __init__(self) -> None:
        self._waits: list[NotedWait] = []

    def note(self, kind: str, frame: FrameType | None, thread: str, blocked_ns: int | None) -> None:
        """Note a wait that is over, or an untimed one that is about to begin."""
        user = blame(frame).user
        if user is None or len(self._waits) >= MAX_NOTED:
            return
        file, line = file_and_line(user.f_code, user.f_lineno or 0)
        self._waits.append(
            NotedWait(
                kind=kind,
                file=file,
                line=line,
                thread=thread,
                end_ns=perf_counter_ns(),
                blocked_ns=-1 if blocked_ns is None else blocked_ns,
            )
        )

    def __len__(self) -> int:
        return len(self._waits)

    def so_far(self) -> tuple[NotedWait, ...]:
        """The waits noted up to now, in the order of their ends."""
        return tuple(self._waits)
