"""What a scope was asked for, checked once at the edge."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainscope.errors import ConfigError
from trainscope.record.schedule import Schedule

if TYPE_CHECKING:
    from trainscope.metrics.sinks import Sink

__all__ = ["Settings", "checked_sinks", "switched_off"]

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
            words = first["msg"][:1].lower() + first["msg"][1:]
            raise ConfigError(f"Scope got {name}={first['input']!r}: {words}") from None


def switched_off() -> bool:
    """Whether ``TRAINSCOPE_DISABLED`` is set to anything but 0."""
    return os.environ.get("TRAINSCOPE_DISABLED", "") not in ("", "0")


def checked_sinks(sinks: object) -> list[Sink]:
    """Return the sinks as a list. Raises ConfigError when it is none, or one in it is no sink."""
    if not isinstance(sinks, Iterable) or isinstance(sinks, (str, bytes, Mapping)):
        raise ConfigError(
            f"Scope got sinks={sinks!r}; it is a list of sinks, such as [ts.sinks.Console()]"
        )
    found = list(sinks)
    for sink in found:
        if isinstance(sink, type):
            raise ConfigError(
                f"Scope got the class {sink.__name__} as a sink; make one: {sink.__name__}()"
            )
        missing = [name for name in ("name", "open", "write", "close") if not hasattr(sink, name)]
        if missing:
            raise ConfigError(
                f"Scope got {sink!r} as a sink, which has no {missing[0]!r}; allowed are those of "
                "ts.sinks (Wandb, TensorBoard, Console, Jsonl) and objects with their methods"
            )
    return found
