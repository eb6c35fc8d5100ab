"""Which of the loops around a training backward is the one whose turn it belongs to.

It is the innermost, unless a loop around that one runs a backward of its own in its turns: a
generator behind its critic's turns, the meta-loss behind an adaptation. Then the loop inside is a
part of that turn. One that goes through a ``DataLoader`` is none: the loop around it is of epochs.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.record.inference.loops import LoopTurns
from trainscope.record.inference.own_backward import has_own_backward
from trainscope.trace.plural import count

__all__ = ["owner_of"]


def owner_of(on_way: Sequence[LoopTurns]) -> LoopTurns | str:
    """Take in a backward inside these loops, outermost first; return the one whose turns are steps.

    In its place a reason why that cannot be told.
    """
    innermost = next((turns for turns in reversed(on_way) if not turns.often_idle), None)
    if innermost is None:
        inner = on_way[-1]
        return f"{count(inner.idle, 'turn')} of the loop at {inner.place} ran no training backward"
    innermost.own_backward_here = True
    owner = _around(innermost, on_way)
    if owner is not innermost:
        owner.has_parts = True
    if owner.recursive:
        return f"the loop at {owner.place} runs inside itself (recursion)"
    return owner


def _around(innermost: LoopTurns, on_way: Sequence[LoopTurns]) -> LoopTurns:
    owner = inner = innermost
    for outer in reversed(on_way[: on_way.index(innermost)]):
        if inner.loads:
            break
        (way, start), (_, end) = outer.newest_place, inner.newest_place
        if not outer.often_idle and has_own_backward(way, start, end):
            owner = outer
        inner = outer
    return owner
