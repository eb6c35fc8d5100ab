"""Ceilings measured before: in memory, and in one JSON file in the user's cache directory."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

__all__ = ["CeilingStore", "cache_file"]


def cache_file() -> Path:
    """``trainscope/ceilings.json`` where this system keeps caches; TRAINSCOPE_CACHE_DIR wins."""
    own = os.environ.get("TRAINSCOPE_CACHE_DIR")
    if own:
        return Path(own) / "ceilings.json"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "trainscope" / "ceilings.json"


class CeilingStore:
    """Numbers by key. A file that cannot be read or written costs a measurement, nothing else."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known: dict[str, float] = {}

    def get(self, key: str) -> float | None:
        """Return the number, or None where it is not known."""
        if key not in self._known:
            self._known = self._read() | self._known
        return self._known.get(key)

    def put(self, key: str, value: float) -> None:
        """Keep a number; other processes' numbers in the file stay."""
        self._known[key] = value
        file = self._path()
        text = json.dumps(self._read() | self._known, indent=2, sort_keys=True)
        partial = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8")
            partial.replace(file)
        except OSError:  # a read-only home: measured again in the next process
            return

    def _path(self) -> Path:
        return cache_file() if self._file is None else self._file

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(self._path().read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {
            str(key): float(value)
            for key, value in found.items()
            if isinstance(value, int | float) and value > 0
        }
