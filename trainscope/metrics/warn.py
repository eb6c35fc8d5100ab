"""Warnings from threads that nobody joins."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn"]


def warn(message: str) -> None:
    """Warn once in words; where warnings are errors, write the line to stderr instead.

    A warning turned into an exception on our thread would end the thread, not the program.
    """
    try:
        warnings.warn(f"trainscope: {message}", RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        if sys.stderr is not None:
            sys.stderr.write(f"trainscope: {message}\n")
