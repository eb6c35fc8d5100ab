"""The turns of one loop of the program, counted from the events inside it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from trainscope.record.inference.regions import LOOP_HEADER, Region
from trainscope.record.inference.seen import Seen, Spot, TurnedBetween
from trainscope.record.inference.stack import Way

__all__ = ["DATA", "FIRST_DATA", "LoopTurns", "Place"]

FIRST_DATA = "first data"
"""The kind of an iterator's first fetch."""
DATA = ("data", FIRST_DATA)

Place = tuple[Way, int]
"""Where an event inside a loop was: the way to it, and where on that way the loop is."""
_TRAINED_FOR_ONE_IDLE = 4
"""A loop that leaves out the backward of a bad batch, once in so many turns or fewer, is one whose
turns are steps; one that runs a backward every second or third turn is not."""
_TRAINED_FOR_ONE_EVALUATION = 4


class LoopTurns:
    """What has been seen of a loop's turns, over all the times the program came to it.

    A turn is ``trained`` when it ran a training backward, ``idle`` when it ran something that
    trains, but no backward; one that only evaluated is neither, and one that only fetched a batch
    is none: it goes on with the next that is fetched.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self._turned = TurnedBetween()

        # what is known of the loop
        self.around: set[Region] = set()
        """Loops that it was seen inside of."""
        self.ways: set[Way] = set()
        """Ways to events inside it, each seen once or more."""
        self.recursive = False
        self.fetches = False
        """It has fetched a batch in one of its turns."""
        self.loads = False
        """It goes through a ``DataLoader``."""
        self.has_parts = False
        """A loop inside it was taken for a part of its turn, though it trains."""
        self.extent: LoopTurns | None = None
        """The loop in which the program still trains, once known: this one, or one around it."""
        self.gone = False
        """The program has run something elsewhere since its last turn."""

        # the turns that have ended
        self.trained = 0
        self.trained_in_parts = 0
        """Turns that trained in loops inside it only."""
        self.idle = 0
        self.evaluated = 0
        self._evaluated_after = -1
        self._evaluated_in = 0
        self.turns_with: dict[Place, int] = {}
        """How many of them came to a place."""
        self.places_of: dict[str, set[Place]] = {"forward": set(), "backward": set()}
        """Places by the kind of event seen there."""
        self.places_that_train: set[Place] = set()
        """Places that have seen more than evaluation."""

        # the turn that runs
        self.began_ns = 0
        """When its first event came."""
        self.events_before = 0
        """How many events the program had seen before its first one."""
        self.places_here: set[Place] = set()
        """Places that it has come to."""
        self.backward_here = False
        """It has run a training backward."""
        self.own_backward_here = False
        """It has run one in no loop inside it."""
        self._training_here = False
        self.only_data = False
        """It has only fetched batches so far."""
        self._first: Seen | None = None

        # the newest event
        self.was_only_data = False
        """The turn had only fetched batches before it."""
        self.entered = False
        """It came after the program had left the loop and come to it again."""
        self._anew = False
        self._last: Seen | None = None

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
    def newest_place(self) -> Place:
        """The way to the newest event inside it, and where on it the loop is."""
        assert self._last is not None
        return self._last.way, self._last.loop.index

    @property
    def evaluates_now(self) -> bool:
        """This turn has only evaluated so far, as turns of it have to their end."""
        return self.evaluated > 0 and bool(self.places_here) and not self._training_here

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

    def turned_to(self, seen: Seen) -> bool | None:
        """Whether it has turned between its newest event and this place; None before any."""
        return None if self._last is None else self._turned(self._last, seen)

    def event(
        self,
        kind: str,
        seen: Seen,
        events_before: int,
        now_ns: int = 0,
        turned: bool | None = None,
    ) -> bool:
        """Take in an event inside the loop; True when it is the first of a new turn.

        ``turned`` is what ``turned_to`` says, where the caller knows it.
        """
        way, loop, frame_ids = seen
        last, is_data = self._last, kind in DATA
        left = last is None or last.frame_ids[last.loop.depth] != frame_ids[loop.depth]
        if last is None or left:
            new = True
        elif self.only_data:  # a batch that was skipped, or the next of several loaders
            new = kind == FIRST_DATA and not self._anew
        else:
            if turned is None:
                turned = self._turned(last, seen)
            new = turned and not self._gradient_again(kind, last, seen)
        self.entered = left or (new and kind == FIRST_DATA and seen.slot == LOOP_HEADER)
        if new:
            self.end_turn()
            self._first, self.events_before, self.began_ns = seen, events_before, now_ns
        self.gone = False
        self.was_only_data = self.only_data and not new
        self.only_data = is_data and (new or self.only_data)
        self._anew = kind == FIRST_DATA
        self._last = seen
        if is_data:
            self.fetches = True
            self.loads = self.loads or seen.slot == LOOP_HEADER
            return new
        place = (way, loop.index)
        self.places_here.add(place)
        if kind != "evaluation":
            self._training_here = True
            self.places_that_train.add(place)
        if kind in self.places_of:
            self.within_newest(kind)
        return new

    def within_newest(self, kind: str) -> None:
        """Take in what the newest event is, or runs by itself, as an optimizer does a closure."""
        if kind == "backward":
            self.backward_here = True
        if kind in self.places_of:
            self.places_of[kind].add(self.newest_place)

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
        return rare and not self.places_that_train and not self.resumable

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
        seen = Seen(spot.way, loop, spot.frame_ids)
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
                self.places_here, self._training_here = set(), False
            self.end_turn()
            self._last, self.only_data, self.gone = None, False, True

    def encloses(self, places: Iterable[tuple[str, int]]) -> bool:
        """Whether one of these files and lines is in what the loop's turns run."""
        region = self.region
        return any(
            file == region.file and region.line <= line <= region.last_line for file, line in places
        )

    def end_turn(self) -> None:
        """Count the turn that has ended, if there was one."""
        if not self.places_here:
            return
        if self.backward_here:
            self.trained += 1
            self.trained_in_parts += not self.own_backward_here
        elif self._training_here:
            self.idle += 1
        else:
            self.evaluated += 1
        for place in self.places_here:
            self.turns_with[place] = self.turns_with.get(place, 0) + 1
        self.places_here = set()
        self.backward_here = self.own_backward_here = self._training_here = False

    def _gradient_again(self, kind: str, before: Seen, after: Seen) -> bool:
        """Whether torch, called once, may have taken this gradient behind what it called before.

        ``torch.func.grad`` calls the program's function first, and a Jacobian takes one gradient
        for each row: from the same place, and no turn that trains is over without a backward.
        """
        if kind != "grad" or self.backward_here:
            return False
        other = after.from_loop
        return before.from_loop[: len(other)] == other
