"""A profiler of the user's own, running or about to: it has the right of way."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.profiler as autograd_profiler

__all__ = ["Watch", "is_recording", "other_profiler"]

_ENTRIES = ("_prepare_trace", "_start_trace")
_watching: list[Watch] = []
"""Those of our own windows that are open."""


def is_recording() -> bool:
    """Whether a torch profiler records on this thread."""
    return torch.autograd._profiler_enabled()  # pyright: ignore[reportPrivateImportUsage]


def other_profiler() -> str | None:
    """Say in words which profiler is in use in this process, or None.

    torch knows of a session that records, but of one in its warm-up only the session's own object
    tells; starting ours then would make theirs crash when it ends. So those objects are searched
    for once a window, among all objects: 0.1 s for each million of them.
    """
    if _watching:
        return "a window of another scope was open; close that scope before"
    if autograd_profiler._is_profiler_enabled or is_recording():
        return "a torch profiler of the program's own was recording"
    kinds = _with_subclasses(autograd_profiler.profile)
    # type(), not isinstance: a proxy's __class__ runs the user's code
    if any(_is_warming_up(thing) for thing in gc.get_objects() if type(thing) in kinds):
        return "a torch profiler of the program's own was in its warm-up"
    return None


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*(_with_subclasses(child) for child in type.__subclasses__(kind)))


def _is_warming_up(session: Any) -> bool:
    """Prepared and not started; one in use again (``acc_events=True``) is not seen."""
    return (
        getattr(session, "entered", False)
        and session.kineto_results is None
        and not session.profiling_start_time_ns
    )


class Watch:
    """While a window of ours is open, calls ``on_other`` before another session begins.

    Torch's sessions are entered through two methods of one class; these are wrapped for the time
    of the window and put back after it.
    """

    def __init__(self, is_ours: Callable[[object], bool], on_other: Callable[[], None]) -> None:
        self._is_ours = is_ours
        self._on_other = on_other
        self._active = False
        self._wrapped: dict[str, tuple[Any, Any]] = {}

    def start(self) -> None:
        """Wrap the entries."""
        self._active = True
        _watching.append(self)
        for name in _ENTRIES:
            original = getattr(autograd_profiler.profile, name)
            wrapper = self._wrap(original)
            self._wrapped[name] = (original, wrapper)
            setattr(autograd_profiler.profile, name, wrapper)

    def stop(self) -> None:
        """Put the entries back, except one that somebody has wrapped since: it only passes on."""
        self._active = False
        if self in _watching:
            _watching.remove(self)
        for name, (original, wrapper) in self._wrapped.items():
            if getattr(autograd_profiler.profile, name) is wrapper:
                setattr(autograd_profiler.profile, name, original)
        self._wrapped.clear()

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def entry(session: Any, *args: Any, **kwargs: Any) -> Any:
            if self._active and not self._is_ours(session):
                self._on_other()
            return original(session, *args, **kwargs)

        return entry
