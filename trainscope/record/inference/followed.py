"""All loops of the program, each followed from event to event."""

from __future__ import annotations

from time import perf_counter_ns
from types import FrameType

from trainscope.record.inference.loops import LoopTurns
from trainscope.record.inference.regions import Region
from trainscope.record.inference.seen import Spot
from trainscope.record.inference.stack import way_to

__all__ = ["FollowedLoops"]


class FollowedLoops:
    """The loops around the newest event, and how many events there have been."""

    def __init__(self) -> None:
        self._loops: dict[Region, LoopTurns] = {}
        self.on_way: list[LoopTurns] = []
        """The loops the last event was in, outermost first."""
        self.events = 0
        self.blind: str | None = None
        """A loop may be hidden around it: why, in words."""

    def event(self, kind: str, frame: FrameType | None) -> list[LoopTurns]:
        """Take in an event inside this innermost frame; return the loops that it began a turn of.

        Kinds are those of ``StepInference.on_event``.
        """
        way, frame_ids = way_to(frame)
        now_ns = perf_counter_ns()
        on_way: list[LoopTurns] = []
        plain: LoopTurns | None = None
        new: list[LoopTurns] = []
        for loop in way.loops:
            turns = self._loops.get(loop.region)
            if turns is None:
                turns = self._loops[loop.region] = LoopTurns(loop.region)
            if loop.repeated:
                turns.recursive = True  # the innermost of its runs is the one that is followed
                continue
            if way not in turns.ways:
                turns.ways.add(way)
                turns.around.update(each.region for each in on_way)
            on_way.append(turns)
            if loop.resumable:
                turns.extent = plain  # it trains as long as there is someone who goes through it
            else:
                plain = turns
            if turns.event(kind, way, loop, frame_ids, self.events, now_ns):
                new.append(turns)
        self.events += 1
        self.on_way = on_way
        self.blind = way.blind
        return new

    def spot(self, frame: FrameType | None) -> Spot:
        """Where the program is, at a moment that is no event."""
        way, frame_ids = way_to(frame)
        return Spot(way, frame_ids, self.events)

    def only_evaluating(self, trained: int) -> list[LoopTurns]:
        """Those that have evaluated among so many steps, and never trained."""
        return [turns for turns in self._loops.values() if turns.only_evaluates(trained)]
