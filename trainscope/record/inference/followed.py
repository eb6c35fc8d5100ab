"""All loops of the program, each followed from event to event."""

from __future__ import annotations

from time import perf_counter_ns
from types import FrameType

from trainscope.record.inference.loops import LoopTurns
from trainscope.record.inference.regions import Region
from trainscope.record.inference.seen import Seen, Spot
from trainscope.record.inference.stack import LoopOnWay, Way, way_to

__all__ = ["FollowedLoops"]

_MAX_WAYS = 20_000


class _OnWay:
    """What is known of one way to an event.

    ``turns`` are the loops on it, outermost first; of one that recurses only its innermost run.
    """

    __slots__ = ("after", "frame_ids", "loops", "seen", "turns", "within")

    def __init__(self) -> None:
        self.turns: list[LoopTurns] = []
        self.loops: list[LoopOnWay] = []
        self.within: list[tuple[LoopTurns, LoopTurns | None]] = []
        """Generators' loops, and the loop that goes through each."""
        self.frame_ids: tuple[int, ...] | None = None
        """The frames it was last seen in."""
        self.seen: list[Seen] = []
        """Each loop in those."""
        self.after: dict[_OnWay, list[bool | None]] = {}
        """Which loops turn on the way here from another event in the same frames; None: ask."""


class FollowedLoops:
    """The loops around the newest event, and how many events there have been."""

    def __init__(self) -> None:
        self._loops: dict[Region, LoopTurns] = {}
        self._ways: dict[Way, _OnWay] = {}
        self._last = _OnWay()
        self.on_way: list[LoopTurns] = []
        """The loops the last event was in, outermost first."""
        self.events = 0
        self.blind: str | None = None
        """A loop may be hidden around it: why, in words."""

    def event(self, kind: str, frame: FrameType | None) -> list[LoopTurns]:
        """Take in an event inside this innermost frame; return the loops that it began a turn of.

        Kinds are those of ``StepInference.on_event``. It comes several times in each step, when
        the caches hold torch's code: what the last step had found is looked up, not found again.
        """
        way, frame_ids = way_to(frame)
        now_ns = perf_counter_ns()
        found, last = self._ways.get(way), self._last
        same_frames = frame_ids == last.frame_ids
        if found is None:
            found = self._first_seen(way)
        if found.frame_ids != frame_ids:
            found.frame_ids = frame_ids
            found.seen = [Seen(way, loop, frame_ids) for loop in found.loops]
        turned = None
        if same_frames:
            turned = found.after.get(last)
            if turned is None:
                turned = found.after[last] = _turned(found, last)
        for turns, through in found.within:
            turns.extent = through  # it trains as long as there is someone who goes through it
        events = self.events
        new: list[LoopTurns] = []
        for at, turns in enumerate(found.turns):
            known = None if turned is None else turned[at]
            if turns.event(kind, found.seen[at], events, now_ns, known):
                new.append(turns)
        self._last = found
        self.events = events + 1
        self.on_way = found.turns
        self.blind = way.blind
        return new

    def _first_seen(self, way: Way) -> _OnWay:
        found = _OnWay()
        plain: LoopTurns | None = None
        for loop in way.loops:
            turns = self._loops.get(loop.region)
            if turns is None:
                turns = self._loops[loop.region] = LoopTurns(loop.region)
            if loop.repeated:
                turns.recursive = True  # the innermost of its runs is the one that is followed
                continue
            turns.ways.add(way)
            turns.around.update(each.region for each in found.turns)
            found.turns.append(turns)
            found.loops.append(loop)
            if loop.resumable:
                found.within.append((turns, plain))
            else:
                plain = turns
        if len(self._ways) >= _MAX_WAYS:
            self._ways.clear()
        self._ways[way] = found
        return found

    def spot(self, frame: FrameType | None) -> Spot:
        """Where the program is, at a moment that is no event."""
        way, frame_ids = way_to(frame)
        return Spot(way, frame_ids, self.events)

    def only_evaluating(self, trained: int) -> list[LoopTurns]:
        """Those that have evaluated among so many steps, and never trained."""
        return [turns for turns in self._loops.values() if turns.only_evaluates(trained)]


def _turned(found: _OnWay, last: _OnWay) -> list[bool | None]:
    """Which loops have turned since the last event; of those that it was not in, None."""
    return [
        turns.turned_to(seen) if turns in last.turns else None
        for turns, seen in zip(found.turns, found.seen, strict=True)
    ]
