"""How steps were counted, and why that may be wrong; in words."""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.record.inference.certainty import (
    evaluated_certain,
    idle_certain,
    trained_certain,
)
from trainscope.record.inference.loops import LoopTurns
from trainscope.trace.plural import count

__all__ = ["counted", "doubt_about", "nested"]

BY = "trainscope run"


def counted(loops: Sequence[LoopTurns], backwards_in_no_loop: int) -> str:
    """How the steps were counted, where there is no doubt about it."""
    if not loops:
        return f"{BY}: the one training backward, in no loop, is the one step"
    text = f"{BY}: turns of the loop at {' and at '.join(turns.place for turns in loops)}"
    if any(turns.has_parts for turns in loops):
        text += "; loops inside it that train are parts of its turns"
    evaluated = sum(turns.evaluated for turns in loops)
    if evaluated and all(map(evaluated_certain, loops)):
        text += f"; {count(evaluated, 'turn')} that only evaluated {_no_steps(evaluated)}"
    idle = sum(turns.idle for turns in loops)
    if idle and all(map(idle_certain, loops)):
        text += f"; {count(idle, 'turn')} that ran no backward {_no_steps(idle)}"
    if backwards_in_no_loop:
        alone = backwards_in_no_loop
        text += f"; {count(alone, 'backward')} in no loop {_no_steps(alone)}"
    return text


def _no_steps(number: int) -> str:
    return "is no step" if number == 1 else "are no steps"


def doubt_about(
    loops: Sequence[LoopTurns], backwards_in_no_loop: int, gradients: int
) -> str | None:
    """Why the turns of these loops may not be the steps, asked at the end; None: they are.

    ``backwards_in_no_loop`` counts training backwards, ``gradients`` the calls of
    ``torch.autograd.grad``.
    """
    if not loops:
        if backwards_in_no_loop > 1:
            return f"{backwards_in_no_loop} training backwards ran, in no loop"
        if backwards_in_no_loop == 1:
            return None
        if gradients:
            return (
                f"gradients came from torch.autograd.grad alone ({gradients} calls), "
                "which need not be training"
            )
        return (
            "no training backward was seen on the main thread; other threads, and processes that "
            "the program starts, are not followed. A launcher has to start trainscope: torchrun … "
            "-m trainscope run train.py; with torch.multiprocessing.spawn and the like, make a "
            "trainscope.Scope in the function that trains"
        )
    for turns in loops:
        if turns.often_idle:
            idle = count(turns.idle, "turn")
            return f"{idle} of the loop at {turns.place} ran no training backward"
        if turns.often_in_parts:
            return (
                f"of the turns of the loop at {turns.place} too few ran a training backward "
                "in no loop inside it"
            )
        if not trained_certain(turns):
            return (
                f"in the loop at {turns.place} nothing that trains has to run in every turn, so "
                "one turn cannot be told from the next"
            )
    return nested(loops)


def nested(loops: Sequence[LoopTurns]) -> str | None:
    """Why one of the loops runs inside another of them, in words; None: none does."""
    for turns in loops:
        for other in loops:
            if other.region in turns.around:
                return (
                    f"backwards run in the loop at {turns.place}, and also outside it in the "
                    f"loop at {other.place} around it"
                )
    return None
