"""The formats of what is no page."""

from __future__ import annotations

from enum import Enum

__all__ = ["TextFormat"]


class TextFormat(str, Enum):
    """What a verb without a page can write."""

    text = "text"
    json = "json"
