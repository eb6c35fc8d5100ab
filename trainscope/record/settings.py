"""What a scope was asked for, checked once at the edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainscope.errors import ConfigError
from trainscope.record.schedule import Schedule

__all__ = ["Settings"]

Reduction = Literal["mean", "last", "sum", "min", "max"]


class Settings(BaseModel):
    """The arguments of ``Scope``; goes into ``run.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_dir: Path
    schedule: Schedule | None = None
    sync: Literal["record", "warn", "error", "off"] = "record"
    every: int = Field(default=1, ge=1, strict=True)
    reduce: Reduction | dict[str, Reduction] = "mean"
    stop_on_nan: bool = Field(default=False, strict=True)
    stacks: bool = Field(default=False, strict=True)
    dry_run: bool = Field(default=False, strict=True)
    start_step: int = Field(default=0, ge=0, strict=True)

    @classmethod
    def checked(cls, **arguments: Any) -> Settings:
        """Build it. Raises ConfigError naming the argument, what came and what is allowed."""
        try:
            return cls(**arguments)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"][:1]) or "an argument"
            raise ConfigError(
                f"Scope got {name}={first['input']!r}: {first['msg'].lower()}"
            ) from None
