"""How far training reaches: the loop that the program leaves when it goes on to something else.

That is the loop of the steps, or the one around it whose turns run the optimizer: what stands
behind the micro-batches of a step is training too. A generator's loop reaches as far as the loop
that goes through the generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

from trainscope.record.inference.loops import DATA, LoopTurns

__all__ = ["around", "in_training", "learn_batch_loop", "learn_extent", "leaves"]


def learn_extent(owner: LoopTurns | None, on_way: Sequence[LoopTurns]) -> None:
    """Take in where an optimizer ran: in the loop ``owner`` that trained last, or around it."""
    if owner is None or owner.resumable or owner.extent is not None:
        return
    if owner in on_way:
        owner.extent = owner
        return
    around = [turns for turns in on_way if turns.region in owner.around]
    owner.extent = around[-1] if around else owner


def learn_batch_loop(owner: LoopTurns, on_way: Sequence[LoopTurns]) -> None:
    """Take in that a turn of ``owner`` begins, in a turn of a loop around it that has fetched.

    Where ``owner`` itself never fetches, the nearest that does fetches its batches for it, as that
    of a Hugging Face ``Trainer`` does for one optimizer step, and is training too.
    """
    if owner.extent is not owner or owner.fetches:
        return
    outer = on_way[: on_way.index(owner)]
    fetching = next((turns for turns in reversed(outer) if turns.fetches), None)
    if fetching is not None and fetching.was_only_data:
        owner.extent = fetching


def leaves(kind: str, owner: LoopTurns, on_way: Sequence[LoopTurns]) -> bool:
    """Whether an event of this kind, outside the loop ``owner``, is no more of its turn.

    Another kind may belong to the turn before: an optimizer behind its micro-batches, unless each
    of them has had its own.
    """
    elsewhere = kind in ("forward", "evaluation", *DATA)
    if not elsewhere and not (kind == "optimizer" and owner.extent is owner):
        return False
    return not owner.resumable or (owner.extent is not None and owner.extent not in on_way)


def in_training(
    loops: Sequence[LoopTurns], frame: FrameType | None, *, decided: bool
) -> list[LoopTurns]:
    """Those of the loops in whose reach this innermost frame is.

    One whose reach is not known yet counts as there, unless the program has gone elsewhere, or it
    is ``decided`` that nothing but the loop itself will turn out to be it.
    """
    known = {
        turns: turns.extent or (turns if (decided or turns.gone) and not turns.resumable else None)
        for turns in loops
    }
    found = around([reach for reach in known.values() if reach is not None], frame)
    return [
        turns
        for turns, reach in known.items()
        if reach is None
        # a function that goes through the batches of a validation too
        or (reach in found and (reach is turns or not reach.evaluates_now))
    ]


def around(loops: Sequence[LoopTurns], frame: FrameType | None) -> list[LoopTurns]:
    """Those of the loops that are around this innermost frame."""
    files = {turns.region.file for turns in loops}
    places: list[tuple[str, int]] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if file in files:
            places.append((file, frame.f_lineno or 0))
        frame = frame.f_back
    return [turns for turns in loops if turns.encloses(places)]
