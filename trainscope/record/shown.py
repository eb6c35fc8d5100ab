"""What attached tools show of the ranges: NVTX for the whole run, a profiler while it captures."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ShownRanges", "TimelineDomain"]


class TimelineDomain(Protocol):
    """Where ranges are shown to an attached tool: NVTX, or a profiler's own annotations."""

    def push(self, name: str) -> None:
        """Open a range."""

    def pop(self) -> None:
        """Close the innermost range."""


class ShownRanges:
    """Opens and closes in the tools what the recorder opens and closes; a tool may come and go.

    What a window has shown is closed there too, though the window be over by then.
    """

    __slots__ = ("_in_window", "_step_window", "domain", "window")

    def __init__(self, domain: TimelineDomain | None) -> None:
        self.domain = domain
        """Of a tool that is attached for the whole run; None without one."""
        self.window: TimelineDomain | None = None
        """A profiler's annotations, while a window is captured."""
        self._in_window: dict[int, TimelineDomain] = {}
        """The window that shows an open range, by the range's token."""
        self._step_window: TimelineDomain | None = None

    @property
    def any(self) -> bool:
        """Whether a tool is to be told of what opens or closes next."""
        return (
            self.domain is not None
            or self.window is not None
            or self._step_window is not None
            or bool(self._in_window)
        )

    def open(self, token: int, name: str) -> None:
        """Show the range of that token."""
        if self.domain is not None:
            self.domain.push(name)
        window = self.window
        if window is not None:
            window.push(name)
            self._in_window[token] = window

    def close(self, token: int) -> None:
        """The range of that token has ended."""
        window = self._in_window.pop(token, None)
        if window is not None:
            window.pop()
        if self.domain is not None:
            self.domain.pop()

    def begin_step(self, name: str) -> None:
        """Show a step."""
        if self.domain is not None:
            self.domain.push(name)
        window = self._step_window = self.window
        if window is not None:
            window.push(name)

    def end_step(self) -> None:
        """The step has ended."""
        if self._step_window is not None:
            self._step_window.pop()
            self._step_window = None
        if self.domain is not None:
            self.domain.pop()

    def forget(self) -> None:
        """In a forked child: the tools are its parent's."""
        self._in_window.clear()
        self.domain = self.window = self._step_window = None
