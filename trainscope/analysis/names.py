"""Names of rows of a window, where a row may have none."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from trainscope.trace.window import Window

__all__ = ["name_of"]


def name_of(window: Window, name_id: SupportsIndex) -> str:
    """The name with that number; ``?`` for -1 and for a number past the list."""
    place = index(name_id)
    return window.names[place] if 0 <= place < len(window.names) else "?"
