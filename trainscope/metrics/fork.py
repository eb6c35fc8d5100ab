"""After a fork the child has our objects but none of our threads: it must let them lie."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Forkable", "drop_in_child"]


class Forkable(Protocol):
    """Something that a forked child must stop using."""

    def drop_after_fork(self) -> None:
        """Called in the child, on its only thread; take no lock here, its owner may be gone."""
        ...


_live: weakref.WeakSet[Forkable] = weakref.WeakSet()
_registered = False


def drop_in_child(thing: Forkable) -> None:
    """Call ``thing.drop_after_fork()`` in each child forked while ``thing`` is alive."""
    global _registered
    _live.add(thing)
    if not _registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_drop_all)
        _registered = True


def _drop_all() -> None:
    for thing in tuple(_live):
        thing.drop_after_fork()
    _live.clear()
