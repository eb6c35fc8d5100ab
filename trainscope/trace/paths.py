"""Paths of recorded files, as a reader wants them."""

from __future__ import annotations

__all__ = ["relative_path"]


def relative_path(file: str, cwd: str | None) -> str:
    """``file`` below ``cwd`` as a relative path, any other as it is; of whatever system it came."""
    if not cwd:
        return file
    for separator in ("/", "\\"):
        root = cwd.rstrip(separator) + separator
        if file.startswith(root) and len(file) > len(root):
            return file[len(root) :]
    return file
