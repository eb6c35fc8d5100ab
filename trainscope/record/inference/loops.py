"""The turns of one loop of the program, counted from the events inside it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from trainscope.record.inference.coverage import Site, told_apart
from trainscope.record.inference.order import turned_between
from trainscope.record.inference.regions import LOOP_HEADER, Branch, Region
from trainscope.record.inference.stack import At, LoopOnWay, Way

__all__ = ["DATA", "FIRST_DATA", "LoopTurns", "Spot"]

FIRST_DATA = "first data"
"""The kind of an iterator's first fetch."""
DATA = ("data", FIRST_DATA)

_MAX_RELATIONS = 20_000
_TRAINED_FOR_ONE_IDLE = 4
"""A loop that leaves out the backward of a bad batch, once in so many turns or fewer, is one whose
turns are steps; one that runs a backward every second or third turn is not."""
_TRAINED_FOR_ONE_EVALUATION = 4
_PAIRS = 8
"""Turns with a forward and a backward each, from which on that is no chance."""


class LoopTurns:
    """What has been seen of a loop's turns, over all the times the program came to it.

    A turn is ``trained`` when it ran a training backward, ``idle`` when it ran something that
    trains, but no backward; one that only evaluated is neither, and one that only fetched a batch
    is none: it goes on with the next that is fetched.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self.trained = 0
        self.idle = 0
        self.evaluated = 0
        self.backward_here = False
        """This turn has run a training backward."""
        self.own_backward_here = False
        """This turn has run one in no loop inside it."""
        self.has_parts = False
        """A loop inside it was taken for a part of its turn, though it trains."""
        self.trained_in_parts = 0
        """Turns that trained in loops inside it only."""
        self.loads = False
        """It goes through a ``DataLoader``."""
        self.events_before = 0
        """How many events the program had seen before the first one of this turn."""
        self.recursive = False
        self.ways: set[Way] = set()
        """Ways to events inside it, each seen once or more."""
        self.around: set[Region] = set()
        """Loops that it was seen inside of."""
        self.began_ns = 0
        """When the first event of this turn came."""
        self.only_data = False
        """This turn has only fetched batches so far."""
        self.was_only_data = False
        """The same before the newest event."""
        self._evaluated_after = -1
        self._evaluated_in = 0
        self.fetches = False
        """It has fetched a batch in one of its turns."""
        self.entered = False
        """The newest event came after the program had left the loop and come to it again."""
        self.extent: LoopTurns | None = None
        """The loop in which the program still trains, once known: this one, or one around it."""
        self._anew = False
        self._training_here = False
        self._first: _Seen | None = None
        self._last: _Seen | None = None
        self._relations: dict[tuple[Way, int, Way, int, int], bool] = {}
        self._here: set[tuple[Way, int]] = set()
        self._turns_with: dict[tuple[Way, int], int] = {}
        self._trains: set[tuple[Way, int]] = set()
        """Places that have seen more than evaluation."""
        self._places: dict[str, set[tuple[Way, int]]] = {"forward": set(), "backward": set()}

    @property
    def often_idle(self) -> bool:
        """Too many of its turns ran no training backward for those that did to be the steps."""
        return self.idle * _TRAINED_FOR_ONE_IDLE > self.trained

    @property
    def often_in_parts(self) -> bool:
        """Too many of its turns trained in loops inside it only for those to be its parts."""
        in_parts = self.trained_in_parts + (self.backward_here and not self.own_backward_here)
        own = self.trained + self.backward_here - in_parts
        return self.has_parts and in_parts * _TRAINED_FOR_ONE_IDLE > own

    @property
    def newest_place(self) -> tuple[Way, int]:
        """The way to the newest event inside it, and where on it the loop is."""
        assert self._last is not None
        return self._last.way, self._last.loop.index

    @property
    def evaluates_now(self) -> bool:
        """This turn has only evaluated so far, as turns of it have to their end."""
        return self.evaluated > 0 and bool(self._here) and not self._training_here

    @property
    def place(self) -> str:
        """``file:line``, with the file as the user would write it."""
        file = self.region.file
        relative = os.path.relpath(file) if os.path.isabs(file) else file
        return f"{file if relative.startswith('..') else relative}:{self.region.line}"

    @property
    def resumable(self) -> bool:
        """It is in a generator's frame, which can be left and come back to in mid-turn."""
        return self._last is not None and self._last.loop.resumable

    def event(
        self,
        kind: str,
        way: Way,
        loop: LoopOnWay,
        frame_ids: tuple[int, ...],
        events_before: int,
        now_ns: int = 0,
    ) -> bool:
        """Take in an event inside the loop; True when it is the first of a new turn."""
        seen = _Seen(way, loop, frame_ids)
        last, is_data = self._last, kind in DATA
        left = last is None or _frame_id(last) != _frame_id(seen)
        if last is None or left:
            new = True
        elif self.only_data:  # a batch that was skipped, or the next of several loaders
            new = kind == FIRST_DATA and not self._anew
        else:
            new = self._turned(last, seen) and not self._gradient_again(kind, last, seen)
        self.entered = left or (new and kind == FIRST_DATA and _slot(seen) == LOOP_HEADER)
        if new:
            self.end_turn()
            self._first, self.events_before, self.began_ns = seen, events_before, now_ns
        self.was_only_data = self.only_data and not new
        self.only_data = is_data and (new or self.only_data)
        self._anew = kind == FIRST_DATA
        self._last = seen
        if is_data:
            self.fetches = True
            self.loads = self.loads or _slot(seen) == LOOP_HEADER
            return new
        self._here.add((way, loop.index))
        if kind == "backward":
            self.backward_here = True
        if kind in self._places:
            self._places[kind].add((way, loop.index))
        if kind != "evaluation":
            self._training_here = True
            self._trains.add((way, loop.index))
        return new

    def evaluated_after(self, trained: int) -> None:
        """Take in that a model in eval mode has run in it, after so many steps have trained."""
        if trained != self._evaluated_after:
            self._evaluated_after = trained
            self._evaluated_in += 1

    def only_evaluates(self, trained: int) -> bool:
        """Whether it has evaluated, now and then among so many steps, and never trained.

        What runs in every few steps, as a rollout does, is a part of them.
        """
        rare = 0 < self._evaluated_in * _TRAINED_FOR_ONE_EVALUATION <= trained
        return rare and not self._trains and not self.resumable

    def forget_data(self) -> None:
        """There was no batch to fetch: the turn that only asked for one has not begun."""
        if self.only_data:
            self._last, self.only_data = None, False

    def holds(self, spot: Spot) -> bool:
        """Whether this turn, which still runs, has been at a spot that is no event's."""
        first = self._first
        loop = next((each for each in spot.way.loops if each.region is self.region), None)
        if first is None or loop is None or spot.events_before < self.events_before:
            return False
        seen = _Seen(spot.way, loop, spot.frame_ids)
        if spot.events_before > self.events_before:
            return not self._turned(first, seen)
        # between two events, of which the second began this turn
        return not self._turned(seen, first)

    def leave(self) -> None:
        """The program went elsewhere: the next event inside begins a turn.

        The turn that it left may have been broken off half-way, so it is not idle.
        """
        if self._last is not None and not self._last.loop.resumable:
            if self._training_here and not self.backward_here:
                self._here, self._training_here = set(), False
            self.end_turn()
            self._last, self.only_data = None, False

    def encloses(self, places: Iterable[tuple[str, int]]) -> bool:
        """Whether one of these files and lines is in what the loop's turns run."""
        region = self.region
        return any(
            file == region.file and region.line <= line <= region.last_line for file, line in places
        )

    def end_turn(self) -> None:
        """Count the turn that has ended, if there was one."""
        if not self._here:
            return
        if self.backward_here:
            self.trained += 1
            self.trained_in_parts += not self.own_backward_here
        elif self._training_here:
            self.idle += 1
        else:
            self.evaluated += 1
        for place in self._here:
            self._turns_with[place] = self._turns_with.get(place, 0) + 1
        self._here = set()
        self.backward_here = self.own_backward_here = self._training_here = False

    def certain(self) -> bool:
        """Whether each turn that trains could be told from the next one that does.

        Asked while the last one is open, which may have ended half-way: it need not have come to
        every place. Where a turn only evaluates, it may have been taken for a part of its
        neighbour, and is no step anyway. Where each turn seems to have run the same forward and a
        backward, turns that ran but one of them would have had to alternate all along, and those
        that trained are counted right even so.
        """
        if self.idle_certain():
            return True
        both = max(self._turns_at(self._places["forward"]).values(), default=0) >= self.trained
        enough = self.trained >= _PAIRS
        return both and enough and self._told_apart(self._places["backward"], self.trained)

    def idle_certain(self) -> bool:
        """Whether the turns that ran no backward could be told from the others, and so counted."""
        return self._told_apart(self._trains, self.trained + self.idle)

    def evaluated_certain(self) -> bool:
        """Whether the turns that only evaluated could be told from the others, and so counted."""
        ended = self.trained + self.idle + self.evaluated
        return self._told_apart({*self._turns_with, *self._here}, ended)

    def _gradient_again(self, kind: str, before: _Seen, after: _Seen) -> bool:
        """Whether torch, called once, may have taken this gradient behind what it called before.

        ``torch.func.grad`` calls the program's function first, and a Jacobian takes one gradient
        for each row: from the same place, and no turn that trains is over without a backward.
        """
        if kind != "grad" or self.backward_here:
            return False
        one = before.way.elements[before.loop.index :]
        other = after.way.elements[after.loop.index :]
        return one[: len(other)] == other

    def _told_apart(self, places: Iterable[tuple[Way, int]], ended: int) -> bool:
        turns = self._turns_at(places)
        return told_apart(turns.keys(), [site for site, number in turns.items() if number >= ended])

    def _turns_at(self, places: Iterable[tuple[Way, int]]) -> dict[Site, int]:
        """How many of the turns that have ended came to each of the places."""
        turns_with: dict[Site, int] = {}
        for way, index in places:
            site = _site(way, index)
            turns_with[site] = turns_with.get(site, 0) + self._turns_with.get((way, index), 0)
        return turns_with

    def _turned(self, before: _Seen, after: _Seen) -> bool:
        depth, other_depth = before.loop.depth, after.loop.depth
        if _frame_id(before) != _frame_id(after):
            return True
        same_calls = 0
        below = zip(before.frame_ids[depth + 1 :], after.frame_ids[other_depth + 1 :], strict=False)
        for one, other in below:
            if one != other:
                break
            same_calls += 1
        key = (before.way, before.loop.index, after.way, after.loop.index, same_calls)
        known = self._relations.get(key)
        if known is None:
            if len(self._relations) >= _MAX_RELATIONS:
                self._relations.clear()
            known = self._relations[key] = turned_between(
                before.way.elements[before.loop.index :],
                after.way.elements[after.loop.index :],
                same_calls,
            )
        return known


class Spot(NamedTuple):
    """A place that the program came to between events; it keeps no frame."""

    way: Way
    frame_ids: tuple[int, ...]
    events_before: int
    """How many events had been seen by then."""


class _Seen(NamedTuple):
    way: Way
    loop: LoopOnWay
    frame_ids: tuple[int, ...]


def _frame_id(seen: _Seen) -> int:
    return seen.frame_ids[seen.loop.depth]


def _slot(seen: _Seen) -> int:
    branch = seen.way.elements[seen.loop.index]
    return branch.slot if isinstance(branch, Branch) else LOOP_HEADER


def _site(way: Way, index: int) -> Site:
    """The place in the loop's body; its header is run by every turn."""
    branch = way.elements[index]
    if isinstance(branch, Branch) and branch.slot == LOOP_HEADER:
        return (At(-1),)
    return way.elements[index + 1 :]
