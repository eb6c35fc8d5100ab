"""Writing a file that a person keeps: the old one stays until the new one is whole."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

__all__ = ["how_to_write", "write_whole_file"]

_HOW = {
    errno.ENOSPC: "free some space, or name a file on another disk",
    errno.EDQUOT: "free some space, or name a file on another disk",
    errno.EACCES: "make it writable, or name another file",
    errno.EROFS: "name a file on another disk",
}


def write_whole_file(path: Path, text: str) -> None:
    """Replace the file at once, its mode kept; of a link the file that it points to.

    What is no regular file (``/dev/stdout``, a pipe) is written to. Raises OSError; nothing is left
    behind then.
    """
    file = Path(os.path.realpath(path))
    if file.exists() and not file.is_file():
        file.write_text(text, encoding="utf-8")
        return
    if file.exists() and not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    temporary = file.with_name(f".trainscope-{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        if file.exists():
            shutil.copymode(file, temporary)
        os.replace(temporary, file)
    finally:
        with suppress(OSError):  # it was renamed, or never came to be
            temporary.unlink()


def how_to_write(error: OSError) -> str:
    """The next step after an error of ``write_whole_file``."""
    return _HOW.get(error.errno or 0, "name a file in a directory that exists")
