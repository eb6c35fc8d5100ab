"""Writing files of a run directory so that a reader never meets half of one."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from trainscope.trace.ranges import ROW_BYTES

__all__ = ["RowFile", "jsonable", "write_json_file"]

_calls = itertools.count()


def write_json_file(path: Path, data: object) -> None:
    """Replace ``path`` at once with ``data`` as JSON; a reader sees the old file or the new one."""
    # a name of its own for each call: threads write at once, and so does a signal handler
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_calls)}.tmp")
    try:
        # with an indent Python's own encoder would run, three times as long, beside the user's loop
        text = json.dumps(jsonable(data), allow_nan=False)
        temporary.write_text(f"{text}\n", encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def jsonable(data: object) -> object:
    """``data`` in JSON's types; numbers that JSON lacks turn into ``"nan"``, ``"inf"``, …"""
    if isinstance(data, str):
        # a name may hold half of a surrogate pair (a file name that is no UTF-8)
        return data if data.isascii() else data.encode("utf-8", "replace").decode()
    if data is None or isinstance(data, (bool, int)):
        return data
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    if isinstance(data, BaseModel):
        return jsonable(data.model_dump())
    if is_dataclass(data) and not isinstance(data, type):
        return {field.name: jsonable(getattr(data, field.name)) for field in fields(data)}
    if isinstance(data, Mapping):
        return {str(key): jsonable(value) for key, value in data.items()}
    if isinstance(data, Iterable):
        return [jsonable(value) for value in data]
    return str(data)


class RowFile:
    """An append-only file of little-endian int64 rows (step, name_id, depth, start_ns, end_ns)."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (lives as long as the run)
        self._whole_bytes = self._file.tell() // ROW_BYTES * ROW_BYTES

    def append(self, numbers: Sequence[int]) -> None:
        """Write rows, their numbers one after the other; on OSError (disk full) leave whole rows.

        The file is then cut back to what it held before.
        """
        # half the time of array("q", …), and this thread holds the interpreter meanwhile
        values = np.fromiter(numbers, dtype="<i8", count=len(numbers))
        rest = memoryview(values.tobytes())
        try:
            while len(rest):
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            self._file.truncate(self._whole_bytes)
            raise
        self._whole_bytes += values.nbytes

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._file.close()
