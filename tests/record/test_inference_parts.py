"""Loops that train inside the turn of a loop that trains itself: parts of its step, or a doubt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from tape import Tape, seen


def wgan(t: Tape) -> None:
    for _ in range(6):
        for _ in range(5):
            t.forward()
            t.backward()
            t.optimize()
        t.forward()
        t.backward()
        t.optimize()


def generator_first(t: Tape) -> None:
    for _ in range(6):
        t.forward()
        t.backward()
        t.optimize()
        for _ in range(5):
            t.forward()
            t.backward()
            t.optimize()


def wgan_of_epochs(t: Tape) -> None:
    for _ in range(2):
        t.fetch("first data")
        for _ in range(3):
            for _ in range(5):
                t.fetch()
                t.forward()
                t.backward()
                t.optimize()
            t.forward()
            t.backward()
            t.optimize()


def step_functions(t: Tape) -> None:
    def critic_step() -> None:
        t.forward()
        t.backward()

    def train_generator(amp: bool) -> None:
        t.forward()
        if amp:
            t.backward()
        else:
            t.backward()
        t.optimize()

    def train_step() -> None:
        for _ in range(5):
            critic_step()
            t.optimize()
        train_generator(True)

    for _ in range(6):
        train_step()


def meta_learning(t: Tape) -> None:
    def adapt() -> None:
        for _ in range(2):
            t.forward()
            t.backward()
            t.optimize()

    for _ in range(6):
        for _ in range(3):
            adapt()
            t.forward()
        t.backward()
        t.optimize()


def flat_probe(t: Tape) -> None:
    def probe() -> None:
        for _ in range(10):
            t.backward()
            t.optimize()

    for step in range(6):
        t.forward()
        t.backward()
        t.optimize()
        if step % 2 == 1:
            probe()


def the_last_micro_batch_synchronizes(t: Tape) -> None:
    for _ in range(6):
        for _ in range(3):
            t.forward()
            t.backward()
        t.forward()
        t.backward()
        t.optimize()


def interrupted(t: Tape) -> None:
    with suppress(KeyboardInterrupt):
        for step in range(6):
            for _ in range(5):
                t.forward()
                t.backward()
                t.optimize()
            if step == 5:
                raise KeyboardInterrupt
            t.backward()
            t.optimize()


SIX = [
    wgan,
    generator_first,
    wgan_of_epochs,
    step_functions,
    meta_learning,
    flat_probe,
    the_last_micro_batch_synchronizes,
    interrupted,
]


@pytest.mark.parametrize("program", SIX, ids=lambda program: program.__name__)
def test_the_turn_around_is_the_step(program: Callable[[Tape], None]) -> None:
    tape = seen(program)
    counted_by = tape.inference.counted_by
    assert counted_by.startswith("trainscope run: turns of the loop at "), counted_by
    assert counted_by.endswith("; loops inside it that train are parts of its turns")
    tape.inference.finish()
    assert tape.inference.steps == tape.ended == tape.begun - tape.dropped == 6


def accumulated(t: Tape) -> None:
    for _ in range(2):
        for _ in range(3):
            t.forward()
            t.backward()
        t.optimize()


def one_after_the_other(t: Tape) -> None:
    for _ in range(2):
        for _ in range(2):
            t.train()
        t.forward()
        for _ in range(1):
            t.train()


def rollouts_then_updates(t: Tape) -> None:
    def update() -> None:
        for _ in range(2):
            t.forward()
            t.backward()
            t.optimize()

    for _ in range(1):
        for _ in range(5):
            t.forward()
        for _ in range(3):
            update()


def a_probe_that_never_comes(t: Tape) -> None:
    for epoch in range(2):
        for _ in range(3):
            t.forward()
            t.backward()
            t.optimize()
        if epoch == 7:
            t.backward()


@pytest.mark.parametrize(
    "program",
    [accumulated, one_after_the_other, rollouts_then_updates, a_probe_that_never_comes],
    ids=lambda program: program.__name__,
)
def test_a_turn_around_without_a_backward_of_its_own_is_no_step(
    program: Callable[[Tape], None],
) -> None:
    tape = seen(program)
    counted_by = tape.inference.counted_by
    assert counted_by.startswith("trainscope run: turns of the loop at "), counted_by
    assert not counted_by.endswith("are parts of its turns")
    tape.inference.finish()
    assert tape.inference.steps == tape.ended == 6


def generator_now_and_then(t: Tape) -> None:
    for step in range(12):
        for _ in range(5):
            t.forward()
            t.backward()
        if step % 3 == 0:
            t.backward()


def generator_left_out_inside_its_function(t: Tape) -> None:
    def train_now_and_then(step: int) -> None:
        if step % 3:
            return
        t.forward()
        t.backward()

    for step in range(12):
        for _ in range(5):
            t.forward()
            t.backward()
        train_now_and_then(step)


def generator_left_out_by_a_continue(t: Tape) -> None:
    for step in range(12):
        for _ in range(5):
            t.forward()
            t.backward()
        if step % 3:
            continue
        t.forward()
        t.backward()


def a_backward_that_only_the_source_has(t: Tape) -> None:
    class Engine:
        def backward(self) -> None:
            t.forward()

    for _ in range(3):
        for _ in range(5):
            t.forward()
            t.backward()
        Engine().backward()


def epochs_with_a_backward_behind_their_batches(t: Tape) -> None:
    class Loader:
        def __init__(self) -> None:
            self.left = 5

        def __iter__(self) -> Loader:
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            t.fetch("first data" if self.left == 5 else "data")
            self.left -= 1
            return self.left

    for _ in range(2):
        for _ in Loader():
            t.forward()
            t.backward()
        t.backward()


DOUBTS = {
    generator_now_and_then: "and also outside it in the loop at ",
    generator_left_out_inside_its_function: "and also outside it in the loop at ",
    generator_left_out_by_a_continue: "and also outside it in the loop at ",
    a_backward_that_only_the_source_has: "too few ran a training backward in no loop inside it",
    epochs_with_a_backward_behind_their_batches: "and also outside it in the loop at ",
}


@pytest.mark.parametrize("program", DOUBTS, ids=lambda program: program.__name__)
def test_where_the_turn_around_may_not_be_the_step_it_cannot_tell(
    program: Callable[[Tape], None],
) -> None:
    tape = seen(program)
    assert tape.inference.counted_by.startswith("cannot tell: ")
    assert DOUBTS[program] in tape.inference.counted_by
    tape.inference.finish()
    assert tape.begun == tape.ended + tape.dropped
