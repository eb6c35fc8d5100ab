"""JSON files of a run directory, with every fault named: which file, which place."""

from __future__ import annotations

import json
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from trainscope.errors import RunDirectoryError

__all__ = ["MISSING", "decode", "read_json", "size_of"]

Kind = TypeVar("Kind")

MISSING = object()
"""What stands for a file that is not there."""


def size_of(path: Path) -> int:
    """Bytes of a regular file; raises RunDirectoryError for a folder, or a pipe, which never ends.

    FileNotFoundError where there is none.
    """
    found = path.stat()
    if not S_ISREG(found.st_mode):
        raise RunDirectoryError(f"{path} is no regular file; trainscope did not write it")
    return found.st_size


def read_json(path: Path, default: object = MISSING) -> Any:
    """The content, ``default`` where there is no file; raises RunDirectoryError."""
    try:
        size_of(path)
        content = path.read_bytes()
        data = json.loads(content)
        if b"\\ud" in content.lower():
            # half of a surrogate pair is no character, and no file or terminal takes it
            return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
        return data
    except FileNotFoundError:
        return default
    except (ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is not JSON: {error}") from error
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror or error}") from error


def decode(kind: type[Kind], data: object, path: Path, where: str = "") -> Kind:
    """``data`` as ``kind``; raises RunDirectoryError, which names the place below ``where``."""
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in (where, *first["loc"]) if part != "") or "top level"
        raise RunDirectoryError(
            f"{path} at {place}: {first['msg']}, but it holds {first['input']!r:.80}"
        ) from error
