"""The baseline file: the syncs a program may have, and its budgets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainscope.errors import ConfigError

__all__ = ["Baseline", "Budgets", "KnownSync", "read_baseline", "write_baseline"]

BASELINE_SCHEMA_VERSION = 1
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    """Strict: a misspelt budget that nobody checks would be the worst of all."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Budgets(_Part):
    """What a run may cost at most, null where it may cost anything; edited by hand."""

    step_ms: Limit | None = None
    """Median time of a step; of the slowest rank."""
    syncs_per_step: Limit | None = None
    """Waits in a step, those of `allow_sync` left out; of the rank with most."""
    blocked_ms_per_step: Limit | None = None
    """Time in these waits; a dry run cannot tell it."""
    gpu_idle_ms_per_step: Limit | None = None
    """From the captured window; a run without one cannot tell it."""


class KnownSync(_Part):
    """A sync that is known, by what it is: no line number, so that code may move."""

    file: str
    function: str
    source: str
    kind: str
    lines: Annotated[int, Field(ge=1)] = 1
    """Lines with this same source text in the function."""
    per_step: Limit | None = None
    reason: str | None = None
    """Why it may stay; edited by hand, kept by ``--update``."""


class Baseline(_Part):
    """What ``trainscope check`` holds a run against."""

    schema_version: Literal[1] = BASELINE_SCHEMA_VERSION
    dry_run: bool = False
    """Made from a dry run, which sees other kinds of waits than a GPU does."""
    steps: Annotated[int, Field(ge=0)] = 0
    budgets: Budgets = Budgets()
    syncs: list[KnownSync] = Field(default_factory=list)


def read_baseline(path: Path) -> Baseline:
    """Read it; ConfigError names the file and the place where it is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--baseline {path} is no baseline: byte {error.start} is no UTF-8")  # noqa: B904
    except OSError as error:
        raise ConfigError(f"--baseline {path} cannot be read: {error.strerror}")  # noqa: B904
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--baseline {path} is no JSON: {error}") from None
    if isinstance(data, Mapping) and data.get("schema_version", 1) != BASELINE_SCHEMA_VERSION:
        raise ConfigError(
            f"--baseline {path} has schema_version {data['schema_version']!r}, this trainscope "
            f"reads {BASELINE_SCHEMA_VERSION}: write it anew with --update"
        )
    try:
        return Baseline.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "its top"
        raise ConfigError(f"--baseline {path}, at {place}: {first['msg']}") from None


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Replace the file at once; ConfigError where it cannot be written."""
    text = json.dumps(baseline.model_dump(), indent=2, ensure_ascii=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(
            f"--baseline {path} cannot be written: {error.strerror}; name a file in a directory "
            "that exists"
        ) from None
    finally:
        if temporary.exists():
            temporary.unlink()
