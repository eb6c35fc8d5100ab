"""Reading and writing the baseline file, which people edit by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from pydantic import ValidationError

from trainscope.errors import ConfigError
from trainscope.report.gate.baseline import (
    BASELINE_SCHEMA_VERSION,
    Baseline,
    Budgets,
    KnownSync,
)
from trainscope.trace.whole_file import how_to_write, write_whole_file

__all__ = ["read_baseline", "write_baseline"]

_OWNERS = {"budgets": Budgets, "syncs": KnownSync}


def read_baseline(path: Path) -> Baseline | None:
    """Read it, None where there is no such file; ConfigError names the place where it is wrong."""
    text = _text(path)
    if text is None:
        return None
    try:
        data = json.loads(text, object_pairs_hook=_without_doubles)
    except _DoubleKeyError as error:
        raise ConfigError(
            f"--baseline {path} has the key {error.key!r} twice in one object, and only one of "
            "them would count: remove the other"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--baseline {path} is no JSON: {error}") from None
    if isinstance(data, Mapping) and data.get("schema_version", 1) != BASELINE_SCHEMA_VERSION:
        raise ConfigError(
            f"--baseline {path} has schema_version {data['schema_version']!r}, this trainscope "
            f"reads {BASELINE_SCHEMA_VERSION}: write it anew with --update"
        )
    try:
        baseline = Baseline.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "its top"
        words = first["msg"]
        if first["type"] == "extra_forbidden":
            owner = Baseline if len(first["loc"]) == 1 else _OWNERS[str(first["loc"][0])]
            words = f"no such name; allowed are {', '.join(owner.model_fields)}"
        raise ConfigError(f"--baseline {path}, at {place}: {words}") from None
    _refuse_doubles(path, baseline)
    return baseline


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Replace the file at once, its mode kept; ConfigError where it cannot be written."""
    text = json.dumps(baseline.model_dump(), indent=2, ensure_ascii=True)
    try:
        write_whole_file(path, text + "\n")
    except OSError as error:
        raise ConfigError(
            f"--baseline {path} cannot be written: {error.strerror}; {how_to_write(error)}"
        ) from None


def _text(path: Path) -> str | None:
    try:
        mode = path.stat().st_mode
        if not S_ISREG(mode):  # a pipe that nobody writes to would be waited for without end
            what = "Is a directory" if S_ISDIR(mode) else "Is no regular file"
            raise ConfigError(f"--baseline {path} cannot be read: {what}")
        return path.read_text(encoding="utf-8-sig")  # editors put a byte order mark before it
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"--baseline {path} is no baseline: byte {error.start} is no UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(f"--baseline {path} cannot be read: {error.strerror}") from None


class _DoubleKeyError(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _DoubleKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


def _refuse_doubles(path: Path, baseline: Baseline) -> None:
    """As a merge of two branches leaves them: which of the two holds nobody could say."""
    seen: dict[tuple[str, str, str, str], int] = {}
    for place, each in enumerate(baseline.syncs):
        first = seen.setdefault((each.file, each.function, each.source, each.kind), place)
        if first != place:
            raise ConfigError(
                f"--baseline {path}, at syncs.{place}: the same sync stands at syncs.{first}; "
                "keep one of them"
            )
