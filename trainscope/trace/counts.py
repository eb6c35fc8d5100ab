"""``counts.json``: what the recorder counted beside the ranges."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Counts"]


class Counts(BaseModel):
    """Totals of one rank; a field is None where it was not counted, which is not 0."""

    model_config = ConfigDict(frozen=True, extra="allow")

    optimizer_steps: int | None = None
    forwards: int | None = None
    backwards: int | None = None
    range_cost_ns: float | None = None
    """CPU time of opening and closing one range, measured in this process."""
    per_step_cost_ns: float | None = None
    """CPU time of all else that trainscope did on the loop's thread in a step, ranges left out."""
    not_seen: list[str] = []
    """Models and calls that the hooks could not follow, in words."""
