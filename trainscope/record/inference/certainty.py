"""Whether the turns of a loop were counted right: each could be told from the next one.

Asked while the last turn is open, which may have ended half-way: it need not have come to every
place.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainscope.record.inference.coverage import Site, told_apart
from trainscope.record.inference.loops import LoopTurns, Place
from trainscope.record.inference.regions import LOOP_HEADER, Branch
from trainscope.record.inference.stack import At

__all__ = ["evaluated_certain", "idle_certain", "trained_certain"]

_PAIRS = 8
"""Turns with a forward and a backward each, from which on that is no chance."""


def trained_certain(turns: LoopTurns) -> bool:
    """Whether each turn that trains could be told from the next one that does.

    Where a turn only evaluates, it may have been taken for a part of its neighbour, and is no step
    anyway. Where each turn seems to have run the same forward and a backward, turns that ran but
    one of them would have had to alternate all along, and those that trained are counted right even
    so. An optimizer's closure runs both at one place.
    """
    if idle_certain(turns):
        return True
    forwards = _turns_at(turns, turns.places_of["forward"])
    backwards = _turns_at(turns, turns.places_of["backward"])
    both = max(forwards.values(), default=0) >= turns.trained and turns.trained >= _PAIRS
    closures = bool(backwards) and backwards.keys() <= forwards.keys()
    return (both or closures) and _told_apart(turns, turns.places_of["backward"], turns.trained)


def idle_certain(turns: LoopTurns) -> bool:
    """Whether the turns that ran no backward could be told from the others, and so counted."""
    return _told_apart(turns, turns.places_that_train, turns.trained + turns.idle)


def evaluated_certain(turns: LoopTurns) -> bool:
    """Whether the turns that only evaluated could be told from the others, and so counted."""
    ended = turns.trained + turns.idle + turns.evaluated
    return _told_apart(turns, {*turns.turns_with, *turns.places_here}, ended)


def _told_apart(turns: LoopTurns, places: Iterable[Place], ended: int) -> bool:
    found = _turns_at(turns, places)
    return told_apart(found.keys(), [site for site, number in found.items() if number >= ended])


def _turns_at(turns: LoopTurns, places: Iterable[Place]) -> dict[Site, int]:
    """How many of the turns that have ended came to each of the places."""
    turns_at: dict[Site, int] = {}
    for place in places:
        site = _site(place)
        turns_at[site] = turns_at.get(site, 0) + turns.turns_with.get(place, 0)
    return turns_at


def _site(place: Place) -> Site:
    """The place in the loop's body; its header is run by every turn."""
    way, index = place
    branch = way.elements[index]
    if isinstance(branch, Branch) and branch.slot == LOOP_HEADER:
        return (At(-1),)
    return way.elements[index + 1 :]
