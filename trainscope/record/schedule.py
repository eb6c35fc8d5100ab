"""``Schedule``: which steps of a run are captured, in torch.profiler's words."""

from __future__ import annotations

from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from trainscope.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["Action", "Schedule"]

_Count = Annotated[int, Field(strict=True, ge=0)]
_AtLeastOne = Annotated[int, Field(strict=True, ge=1)]

_MEANING = {
    "skip_first": "steps to leave out once, before the first cycle",
    "wait": "steps of each cycle that run undisturbed",
    "warmup": "steps with the profiler on and their record thrown away",
    "active": "steps to capture",
    "repeat": "how many cycles, 0 for as many as max_bytes allows",
    "max_bytes": "size of all traces of a rank at which no further window begins",
}


class Action(Enum):
    """What a capture does in one step."""

    NONE = "none"
    WARMUP = "warmup"
    ACTIVE = "active"
    LAST = "last"
    """Active, and the window ends with this step."""


class Schedule(BaseModel, frozen=True, extra="forbid"):
    """``skip_first`` steps, then ``repeat`` cycles of ``wait``, ``warmup`` and ``active`` steps.

    The words are those of ``torch.profiler.schedule``, but ``repeat`` defaults to 1; 0 means for
    ever. No further window begins once the traces of a rank hold ``max_bytes`` bytes.

    Raises:
        ConfigError: a value is no whole number or too small, or a name is unknown.
    """

    skip_first: _Count = 0
    wait: _Count = 0
    warmup: _Count = 0
    active: _AtLeastOne
    repeat: _Count = 1
    max_bytes: _AtLeastOne = 1 << 30

    if not TYPE_CHECKING:  # the checker keeps the signature that pydantic derives from the fields

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(_explain(error)) from None

    def action(self, step_index: int) -> Action:
        """What to do in the ``step_index``-th step, counted from 0 where the run began."""
        if step_index < 0:
            raise ConfigError(f"step_index={step_index} is negative; steps count from 0")
        cycle_steps = self.wait + self.warmup + self.active
        cycle, place = divmod(step_index - self.skip_first, cycle_steps)
        if cycle < 0 or (self.repeat and cycle >= self.repeat) or place < self.wait:
            return Action.NONE
        if place < self.wait + self.warmup:
            return Action.WARMUP
        return Action.ACTIVE if place < cycle_steps - 1 else Action.LAST

    def next_window(self, step_index: int) -> int | None:
        """First step, warm-up included, of the first window that begins at ``step_index`` or later.

        None when no further window is asked for.
        """
        cycle_steps = self.wait + self.warmup + self.active
        first = self.skip_first + self.wait
        cycle = max(0, -((first - step_index) // cycle_steps))
        if self.repeat and cycle >= self.repeat:
            return None
        return first + cycle * cycle_steps


def _explain(error: ValidationError) -> str:
    return "; ".join(_explain_one(fault) for fault in error.errors())


def _explain_one(fault: ErrorDetails) -> str:
    name = str(fault["loc"][0]) if fault["loc"] else ""
    kind = fault["type"]
    if kind == "extra_forbidden":
        close = get_close_matches(name, _MEANING, n=1)
        hint = f", did you mean {close[0]!r}?" if close else "."
        return f"Schedule takes no {name!r}{hint} It takes {', '.join(_MEANING)}"
    least = 1 if name in ("active", "max_bytes") else 0
    allowed = f"a whole number, {least} or more ({_MEANING.get(name, '')})"
    if kind == "missing":
        return f"Schedule needs {name}: {allowed}, as in Schedule(wait=20, warmup=3, active=4)"
    return f"Schedule got {name}={fault['input']!r}; {name} must be {allowed}"
