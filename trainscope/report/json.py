"""A report, a comparison or a judgement as JSON: in its schema's order, rounded for readers."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import BaseModel

__all__ = ["render"]

_DIGITS = 6
"""Significant digits: more than any clock here is good for."""


def render(result: BaseModel) -> str:
    """One JSON object, two spaces a level, ending in a newline; no NaN: such a number is null."""
    return json.dumps(_rounded(result.model_dump()), indent=2, allow_nan=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
