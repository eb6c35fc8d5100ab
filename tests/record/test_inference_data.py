"""Turns that begin with the fetch of their batch; each program is a function that emits events.

Its docstring is the log that is expected: ``b`` a step begins, ``e`` it ends, ``l`` it ends with
its newest range, ``d`` it is dropped, ``<`` it is moved back to its first event.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from tape import played

from trainscope.record.inference import StepInference


class Tape:
    """Stands for the hooks and for the detector."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.inside: list[bool | None] = []
        self.inference = StepInference(
            begin=lambda: self.log.append("b"),
            end=lambda: self.log.append("e"),
            end_last=lambda: self.log.append("l"),
            drop=lambda: self.log.append("d"),
            backdate=lambda began_ns: self.log.append("<"),
        )

    def emit(self, kind: str) -> None:
        self.inference.on_event(kind)

    def learn(self) -> None:
        self.emit("forward")
        self.emit("backward")

    def train(self) -> None:
        self.learn()
        self.emit("optimizer")

    def wait(self) -> None:
        """Something waits: is that training?"""
        self.inside.append(self.inference.inside(sys._getframe(1)))


class Loader:
    """Announces its fetches as the hooks do; it has no Python frame while it is gone through."""

    def __init__(self, tape: Tape, batches: int) -> None:
        self.tape, self.batches = tape, batches

    def __iter__(self) -> Iterator[int]:
        return iter(Fetch(self.tape, self.batches), -1)


class Fetch:
    """The ``__call__`` that ``iter(..., -1)`` makes of a fetch; its frame is no loop."""

    def __init__(self, tape: Tape, batches: int) -> None:
        self.tape, self.left, self.kind = tape, batches, "first data"

    def __call__(self) -> int:
        self.tape.emit(self.kind)
        self.kind = "data"
        if not self.left:
            self.tape.emit("no data")
            return -1
        self.left -= 1
        return self.left


def shown(items: Iterable[Any]) -> Iterator[Any]:
    yield from items


def progress(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:  # noqa: UP028
        yield item


def one_ahead(items: Iterable[Any]) -> Iterator[Any]:
    iterator = iter(items)
    current = next(iterator)
    while True:
        try:
            following = next(iterator)
        except StopIteration:
            yield current
            return
        yield current
        current = following


def plain(t: Tape) -> None:
    """b<ebebd"""
    for _ in Loader(t, 2):
        t.train()


def enumerated(t: Tape) -> None:
    """b<ebebd"""
    for _ in enumerate(Loader(t, 2)):
        t.train()


def another_optimizer_behind_the_loop(t: Tape) -> None:
    """b<ebl"""
    for _ in range(2):
        t.train()
    t.emit("optimizer")  # L-BFGS, after Adam


def with_a_progress_bar(t: Tape) -> None:
    """b<ebebd"""
    for _ in progress(Loader(t, 2)):
        t.train()


def delegated(t: Tape) -> None:
    """b<ebebd"""
    for _ in shown(Loader(t, 2)):
        t.train()


def fetched_one_ahead(t: Tape) -> None:
    """b<ebdb"""
    for _ in one_ahead(Loader(t, 2)):
        t.train()


def two_loaders(t: Tape) -> None:
    """b<ebebd"""
    for _ in zip(Loader(t, 2), Loader(t, 2), strict=False):
        t.train()


def batches_skipped(t: Tape) -> None:
    """b<ebebd"""
    for number in Loader(t, 6):
        if number not in (4, 2):
            continue
        t.train()


def broken_off_after_a_fetch(t: Tape) -> None:
    """b<ebebdbebeb"""
    for _ in range(2):
        for at, _ in enumerate(Loader(t, 9)):
            if at == 2:
                break
            t.train()


def two_epochs(t: Tape) -> None:
    """b<ebdbebd"""
    for _ in range(2):
        for _ in Loader(t, 1):
            t.train()


def by_hand(t: Tape) -> None:
    """b<ebebdbeb"""
    fetch = iter(Loader(t, 2))
    for _ in range(4):
        try:
            next(fetch)
        except StopIteration:
            fetch = iter(Loader(t, 2))
            next(fetch)
        t.train()


def statistics_first(t: Tape) -> None:
    """b<ebebd"""
    for _ in Loader(t, 3):
        t.wait()
    t.emit("data")
    for _ in Loader(t, 2):
        t.train()


def validation_behind_each_epoch(t: Tape) -> None:
    """b<ebdbebd"""
    for _ in range(2):
        for _ in Loader(t, 1):
            t.train()
        for _ in Loader(t, 2):
            t.emit("evaluation")


def validation_in_a_turn(t: Tape) -> None:
    """b<ebebd"""
    for _ in Loader(t, 2):
        t.train()
        for _ in Loader(t, 2):
            t.emit("evaluation")


def one_loop_for_both(t: Tape) -> None:
    """b<ebebdbdbdbd"""
    for training in (True, False):
        for _ in Loader(t, 2):
            if training:
                t.train()
            else:
                t.emit("evaluation")


def micro_batches_of_a_batch(t: Tape) -> None:
    """b<ebeb<ebe"""
    for _ in Loader(t, 2):
        for _ in range(2):
            t.learn()
        t.emit("optimizer")
        t.wait()


def batches_fetched_for_an_inner_loop(t: Tape) -> None:
    """b<eblb<ebeb<eb"""
    fetch = iter(Loader(t, 6))
    for _ in range(3):
        for _ in [next(fetch) for _ in range(2)]:
            t.train()
        t.wait()


def batches_fetched_outside_of_a_retry(t: Tape) -> None:
    """b<lb<eb<e"""
    for _ in Loader(t, 3):
        while True:  # until the batch, in smaller parts, fits into memory
            for _ in range(1):  # for each of the optimizers
                t.train()
            break


def first_batch_of_an_epoch_by_hand(t: Tape) -> None:
    """b<ebeblbebebl"""
    for _ in range(2):
        fetch = iter(Loader(t, 3))
        more = next(fetch, None)
        while more is not None:
            t.train()
            more = next(fetch, None)
        t.wait()


def a_test_that_runs_a_model(t: Tape) -> None:
    """bdb<ebeb"""

    def not_done(left: int) -> bool:
        t.emit("forward")
        return left > 0

    for _ in range(3):
        left = 2
        while not_done(left):
            t.emit("forward")
            left -= 1
        t.emit("backward")


PROGRAMS = [
    plain,
    enumerated,
    with_a_progress_bar,
    delegated,
    fetched_one_ahead,
    two_loaders,
    batches_skipped,
    broken_off_after_a_fetch,
    two_epochs,
    by_hand,
    statistics_first,
    validation_behind_each_epoch,
    validation_in_a_turn,
    one_loop_for_both,
    micro_batches_of_a_batch,
    batches_fetched_for_an_inner_loop,
    batches_fetched_outside_of_a_retry,
    first_batch_of_an_epoch_by_hand,
    a_test_that_runs_a_model,
    another_optimizer_behind_the_loop,
]


def tape_of(program: Callable[[Tape], None]) -> Tape:
    """What was made of a program."""
    return played(program, Tape())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_when_steps_begin_and_end(program: Callable[[Tape], None]) -> None:
    tape = tape_of(program)
    assert "".join(tape.log) == program.__doc__
    assert tape.inference.counted_by.startswith("trainscope run: "), tape.inference.counted_by


def test_a_fetch_says_whether_a_turn_begins_with_it() -> None:
    def program(t: Tape) -> None:
        for _ in range(2):
            for _ in range(2):
                begins.append(t.inference.on_event("data"))
                begins.append(t.inference.on_event("data"))
                t.learn()
                begins.append(t.inference.on_event("data"))
            begins.append(t.inference.on_event("data"))

    begins: list[bool] = []
    tape_of(program)
    first_turn, turn, behind = [False, False, False], [True, True, False], [False]
    assert begins == [*first_turn, *turn, *behind, *turn, *turn, *behind]


def helper(t: Tape) -> None:
    t.wait()


def epochs_with_pauses(t: Tape) -> None:
    t.wait()
    for _ in range(2):
        t.wait()
        for _ in range(2):
            t.wait()
            t.train()
            helper(t)
        else:
            t.wait()
        helper(t)
    t.wait()


def test_a_wait_outside_the_loop_ends_its_step() -> None:
    tape = tape_of(epochs_with_pauses)
    first_turn, turn, pause = [None, True], [True, True], [False, False]
    assert tape.inside == [
        None,
        None,
        *first_turn,
        *turn,
        *pause,
        False,
        *turn,
        *turn,
        *pause,
        False,
    ]
    assert "".join(tape.log) == "b<eblbebl"
    assert tape.inference.steps == 4


def test_the_loop_that_fetches_for_an_inner_one_is_training_but_epochs_are_not() -> None:
    assert tape_of(batches_fetched_for_an_inner_loop).inside == [False, True, True]
    assert tape_of(first_batch_of_an_epoch_by_hand).inside == [False, False]


class Clock:
    """Goes on by 1 at each look."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1
        return self.ns


def test_what_ending_a_step_takes_is_not_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("trainscope.record.inference.inference.perf_counter_ns", clock)
    began_ns: list[int] = []

    def end() -> None:
        clock.ns += 1_000  # a window is written

    tape = Tape()
    tape.inference = StepInference(
        begin=lambda: None, end=end, end_last=end, drop=end, backdate=began_ns.append
    )
    played(micro_batches_of_a_batch, tape)
    assert len(began_ns) == 2
    assert began_ns[1] > 2_000


def test_behind_micro_batches_it_still_trains() -> None:
    def program(t: Tape) -> None:
        for _ in range(3):
            t.wait()
            for _ in range(2):
                t.wait()
                t.learn()
            t.wait()
            t.emit("optimizer")
            t.wait()
        t.wait()

    tape = tape_of(program)
    assert tape.inside == [None, None, *[True] * 13, False]
    assert "".join(tape.log) == "b<ebebebebebl"


def test_a_validation_in_the_loop_that_fetches_for_an_inner_one_is_not_training() -> None:
    def batches(t: Tape, number: int, *, training: bool) -> None:
        for _ in Loader(t, number):
            if training:
                for _ in range(1):  # for each of the optimizers
                    t.train()
            else:
                t.emit("evaluation")
            t.wait()

    def program(t: Tape) -> None:
        for _ in range(3):
            batches(t, 2, training=True)
            batches(t, 2, training=False)

    # learnt in the second turn of each: what is training, and what only evaluates
    first, later = [False, True, True, False], [True, True, False, False]
    assert tape_of(program).inside == [*first, *later, *later]


def test_a_generator_s_loop_reaches_as_far_as_its_reader_s() -> None:
    def training(t: Tape) -> Iterator[int]:
        for number in range(3):
            t.learn()
            yield number
            t.emit("optimizer")

    def program(t: Tape) -> None:
        for _ in training(t):
            t.wait()
        t.wait()

    tape = tape_of(program)
    assert tape.inside == [True, True, True, False]
    assert "".join(tape.log) == "b<ebebl"


def test_the_same_function_called_again_has_left_its_loop() -> None:
    kept = []  # a frame that has ended may pass its identity on

    def epoch(t: Tape) -> None:
        kept.append(sys._getframe())
        for _ in range(2):
            t.train()

    def program(t: Tape) -> None:
        epoch(t)
        epoch(t)

    assert "".join(tape_of(program).log) == "b<eblbeb"


def test_a_turn_that_is_broken_off_is_not_one_without_a_backward() -> None:
    def program(t: Tape) -> None:
        for number in range(3):
            t.emit("forward")
            if number == 2:
                break
            t.emit("backward")
            t.emit("optimizer")
        t.wait()

    tape = tape_of(program)
    assert tape.inside == [False]
    assert tape.inference.counted_by.startswith("trainscope run: "), tape.inference.counted_by
    assert tape.inference.steps == 2


def test_where_it_cannot_tell_every_wait_is_training_s() -> None:
    def program(t: Tape) -> None:
        for number in range(2):
            for _ in range(2):
                t.learn()
            if number == 0:
                t.learn()
        t.wait()

    tape = tape_of(program)
    assert tape.inference.counted_by.startswith("cannot tell: ")
    assert tape.inside == [True]


def test_turns_that_may_only_evaluate_are_no_doubt_about_those_that_train() -> None:
    def program(t: Tape) -> None:
        for turn in range(6):
            if turn != 4:
                t.train()
            if turn % 2 == 0:  # the fourth cannot be told from a part of the third
                t.emit("evaluation")

    tape = tape_of(program)
    assert tape.inference.counted_by.startswith("trainscope run: turns of the loop at ")
    assert "evaluated" not in tape.inference.counted_by
    assert tape.inference.steps == 5


def test_turns_that_only_evaluate_are_counted_where_they_can_be_told() -> None:
    def program(t: Tape) -> None:
        for turn in range(6):
            if turn % 3:
                t.train()
            else:
                t.emit("evaluation")

    tape = tape_of(program)
    assert tape.inference.counted_by.endswith("; 2 turns that only evaluated are no steps")
    assert tape.inference.steps == 4
