"""What to do about a sync, fitting its kind and its place."""

from __future__ import annotations

__all__ = ["advice"]


def advice(kind: str, *, source: str, phase: str | None, during: str, via: str | None) -> str:
    """Return one sentence of advice for a sync of `kind` at the line `source`."""
    return f"{kind} at `{source}`"
