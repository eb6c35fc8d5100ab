"""Where the program was, at an event inside a loop and between events; it keeps no frame."""

from __future__ import annotations

from typing import NamedTuple

from trainscope.record.inference.order import turned_between
from trainscope.record.inference.regions import LOOP_HEADER, Branch
from trainscope.record.inference.stack import Element, LoopOnWay, Way

__all__ = ["Seen", "Spot", "TurnedBetween"]

_MAX_RELATIONS = 20_000


class Spot(NamedTuple):
    """A place that the program came to between events."""

    way: Way
    frame_ids: tuple[int, ...]
    events_before: int
    """How many events had been seen by then."""


class Seen(NamedTuple):
    """A place that the program came to inside a loop."""

    way: Way
    loop: LoopOnWay
    frame_ids: tuple[int, ...]

    @property
    def slot(self) -> int:
        """In which part of the loop it is."""
        branch = self.way.elements[self.loop.index]
        return branch.slot if isinstance(branch, Branch) else LOOP_HEADER

    @property
    def from_loop(self) -> tuple[Element, ...]:
        """The way from the loop on."""
        return self.way.elements[self.loop.index :]


class TurnedBetween:
    """Whether one loop turned between two places inside it; remembered, as a loop repeats them."""

    def __init__(self) -> None:
        self._known: dict[tuple[Way, int, Way, int, int], bool] = {}

    def __call__(self, before: Seen, after: Seen) -> bool:
        """True too where the loop was left and another run of it begun."""
        depth, other_depth = before.loop.depth, after.loop.depth
        ids, other_ids = before.frame_ids, after.frame_ids
        if ids[depth] != other_ids[other_depth]:
            return True
        same_calls = 0
        for one, other in zip(ids[depth + 1 :], other_ids[other_depth + 1 :], strict=False):
            if one != other:
                break
            same_calls += 1
        key = (before.way, before.loop.index, after.way, after.loop.index, same_calls)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_RELATIONS:
                self._known.clear()
            known = turned_between(before.from_loop, after.from_loop, same_calls)
            self._known[key] = known
        return known
