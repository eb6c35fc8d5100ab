"""Codes of findings about captures and about the detector itself."""

from __future__ import annotations

__all__ = ["CODES", "RACE"]

RACE = "TS501"
"""A value read before its copy has landed: not a wait, so not among the kinds of syncs."""

CODES: dict[str, str] = {
    RACE: "a value is read before its non_blocking copy has landed",
    "TS502": "the detector could not see some steps",
    "TS503": "the detector failed and was switched off",
    "TS504": "a schedule was given and never became active",
    "TS505": "a captured window is incomplete",
    "TS506": "another profiler was running, so no window was captured",
}
"""Title by code; a code is never reused."""
