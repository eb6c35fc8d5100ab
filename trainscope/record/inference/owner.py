"""Which of the loops around a training backward is the one whose turn it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.record.inference.loops import LoopTurns
from trainscope.trace.plural import count

__all__ = ["owner_of"]


def owner_of(on_way: Sequence[LoopTurns]) -> LoopTurns | str:
    """The loop whose turns are steps, among those around a backward; or why that cannot be told."""
    owner = next((turns for turns in reversed(on_way) if not turns.often_idle), None)
    if owner is None:
        inner = on_way[-1]
        return f"{count(inner.idle, 'turn')} of the loop at {inner.place} ran no training backward"
    if owner.recursive:
        return f"the loop at {owner.place} runs inside itself (recursion)"
    return owner
