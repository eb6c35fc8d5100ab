"""Telling people something, in words, without ever changing what their program does."""

from __future__ import annotations

import io
import os
import sys
import warnings

__all__ = ["say", "warn", "write"]


def warn(text: str, *, stacklevel: int = 1) -> None:
    """Warn at the caller's line, or further out with ``stacklevel``; raises no ``Exception``.

    Where the program turns warnings into errors, or shows them by code of its own that fails, the
    text goes to standard error: a fault of ours must not end a training.
    """
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=stacklevel + 1)
    except Exception:  # whatever the program's own showwarning raises, too
        say(text)


def say(text: str) -> None:
    """Write one line to standard error, if there is one that takes it; raises no ``Exception``."""
    write(f"{text}\n")


def write(text: str) -> None:
    """Write ``text`` to standard error, if there is one that takes it; raises no ``Exception``."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        if type(stream) is io.TextIOWrapper:
            # Past its buffer: what a full disk leaves there fails Python's own last flush, and the
            # exit status of the program becomes 120.
            stream.flush()
            rest = text.encode(stream.encoding, stream.errors or "strict")
            while rest:
                rest = rest[os.write(stream.fileno(), rest) :]
        else:
            stream.write(text)
            stream.flush()
    except Exception:  # closed, full, a pipe that nobody reads, or an object of the program's own
        return
