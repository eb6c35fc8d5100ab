"""Marks work that trainscope does itself, so that its own waits are never blamed on the user."""

from __future__ import annotations

import threading
from types import TracebackType

__all__ = ["OWN_THREAD_PREFIX", "is_own", "own_work"]

OWN_THREAD_PREFIX = "trainscope"
"""Threads whose name starts with this are ours."""

_here = threading.local()


class own_work:
    """Ignore every wait on this thread inside the block; may be nested and used again."""

    __slots__ = ()

    def __enter__(self) -> None:
        is_own()
        _here.depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _here.depth -= 1


def is_own() -> bool:
    """Return whether what runs now on this thread is trainscope's own work."""
    depth = getattr(_here, "depth", None)
    if depth is None:  # a thread's name is read once: looking it up on every wait costs more
        depth = _here.depth = int(threading.current_thread().name.startswith(OWN_THREAD_PREFIX))
    return depth > 0
