"""Warnings from threads that nobody joins."""

from __future__ import annotations

from trainscope import notice

__all__ = ["warn"]


def warn(message: str) -> None:
    """Warn, in words and by our name; raises no ``Exception``, which would end the thread."""
    notice.warn(f"trainscope: {message}", stacklevel=2)
