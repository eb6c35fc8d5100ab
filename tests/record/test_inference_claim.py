"""What the first turn did before its step began is claimed for it, and nothing else is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import pytest
from tape import played

from trainscope.record.inference import StepInference
from trainscope.record.inference.seen import Spot


class Tape:
    """Stands for the hooks and for the detector: emits events, and notes spots by name."""

    def __init__(self) -> None:
        self.spots: list[tuple[str, Spot]] = []
        self.claimed: list[str] | None = None
        self.inference = StepInference(
            begin=lambda: None,
            end=lambda: None,
            end_last=lambda: None,
            drop=lambda: None,
            claim=self._claim,
        )

    def _claim(self, holds: Callable[[Spot], bool]) -> None:
        assert self.claimed is None
        self.claimed = [name for name, spot in self.spots if holds(spot)]

    def note(self, name: str) -> bool:
        """Something that waits, before it is known what is training."""
        self.spots.append((name, self.inference.spot(sys._getframe(1))))
        return True

    def forward(self) -> None:
        self.inference.on_event("forward")

    def evaluate(self) -> None:
        self.inference.on_event("evaluation")

    def backward(self) -> None:
        self.inference.on_event("backward")


def plain(t: Tape) -> None:
    """top, loss"""
    t.note("before the loop")
    for _ in range(3):
        t.note("top")
        t.forward()
        t.note("loss")
        t.backward()
        t.note("end")


def loading(t: Tape) -> Iterator[int]:
    t.note("workers")
    for number in range(3):
        t.note("batch")
        yield number


def from_a_generator(t: Tape) -> None:
    """workers, batch"""
    for _ in loading(t):
        t.forward()
        t.backward()


def noted(t: Tape, items: Iterable[int]) -> Iterable[int]:
    t.note("what is gone through")
    return items


def the_iterable_is_made_once(t: Tape) -> None:
    """top"""
    for _ in noted(t, range(3)):
        t.note("top")
        t.forward()
        t.backward()


def a_while_loop_s_test(t: Tape) -> None:
    """test"""
    steps = 0
    t.note("before the loop")
    while t.note("test"):
        t.forward()
        t.backward()
        steps += 1
        if steps == 3:
            break


def a_part_of_a_while_loop_s_test(t: Tape) -> None:
    """test"""
    steps = 0
    t.note("before the loop")
    while t.note("test") and steps < 3:
        t.forward()
        t.backward()
        steps += 1


def move(t: Tape) -> None:
    t.note("in a helper")


def a_helper_function(t: Tape) -> None:
    """in a helper, lambda"""
    move(t)
    for _ in range(3):
        move(t)
        (lambda: t.note("lambda"))()
        t.forward()
        t.backward()


def run_epoch(t: Tape, training: bool) -> None:
    for _ in range(2):
        t.note(f"top, training={training}")
        if training:
            t.forward()
            t.backward()
        else:
            t.evaluate()
        t.note(f"end, training={training}")


def the_same_loop_evaluated_before(t: Tape) -> None:
    """top, training=True"""
    run_epoch(t, training=False)
    run_epoch(t, training=True)


def one_loop_that_evaluates_first(t: Tape) -> None:
    """top 2"""
    for number in range(4):
        t.note(f"top {number}")
        if number < 2:
            t.evaluate()
            t.note(f"evaluated {number}")
            continue
        t.forward()
        t.backward()


def a_teacher_first(t: Tape) -> None:
    """top, taught, forwarded"""
    for _ in range(3):
        t.note("top")
        t.evaluate()
        t.note("taught")
        t.forward()
        t.note("forwarded")
        t.backward()


def epochs(t: Tape) -> None:
    """top"""
    for _ in range(2):
        t.note("epoch begins")
        for _ in range(2):
            t.note("top")
            t.forward()
            t.backward()
        t.note("epoch ends")


def one_backward_over_micro_batches(t: Tape) -> None:
    """top, micro-batch, micro-batch, loss"""
    t.note("before the loop")
    for _ in range(3):
        t.note("top")
        for _ in range(2):
            t.note("micro-batch")
            t.forward()
        t.note("loss")
        t.backward()


def a_forward_for_nothing_before(t: Tape) -> None:
    """top"""
    t.note("lazy layers")
    t.forward()
    t.note("made")
    for _ in range(3):
        t.note("top")
        t.forward()
        t.backward()


def two_training_loops(t: Tape) -> None:
    """first"""
    for _ in range(3):
        t.note("first")
        t.forward()
        t.backward()
    for _ in range(3):
        t.note("second")
        t.forward()
        t.backward()


PROGRAMS = [
    plain,
    from_a_generator,
    the_iterable_is_made_once,
    a_while_loop_s_test,
    pytest.param(
        a_part_of_a_while_loop_s_test,
        marks=pytest.mark.skipif(
            sys.version_info < (3, 11),
            reason="before 3.11 a frame says only its line, not which part of an `and` it is at",
        ),
    ),
    a_helper_function,
    the_same_loop_evaluated_before,
    one_loop_that_evaluates_first,
    a_teacher_first,
    epochs,
    one_backward_over_micro_batches,
    a_forward_for_nothing_before,
    two_training_loops,
]


def tape_of(program: Callable[[Tape], None]) -> Tape:
    """What was made of a program."""
    return played(program, Tape())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_claimed(program: Callable[[Tape], None]) -> None:
    claimed = tape_of(program).claimed
    assert claimed is not None
    assert ", ".join(claimed) == program.__doc__


def test_a_program_with_no_loop_claims_at_its_end_what_its_one_step_did() -> None:
    def program(t: Tape) -> None:
        t.note("before")
        t.forward()
        t.note("loss")
        t.backward()
        t.note("after")
        assert t.claimed is None  # a loop may follow
        t.inference.finish()

    assert tape_of(program).claimed == ["loss", "after"]


def test_a_backward_before_the_loop_claims_nothing_for_itself() -> None:
    def program(t: Tape) -> None:
        t.forward()
        t.note("once")
        t.backward()
        for _ in range(3):
            t.note("top")
            t.forward()
            t.note("loss")
            t.backward()
        t.inference.finish()

    assert tape_of(program).claimed == ["top", "loss"]
