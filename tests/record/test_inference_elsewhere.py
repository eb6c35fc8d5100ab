"""What the program runs behind its training loops is none of their steps."""

from __future__ import annotations

import sys

import pytest
from tape import Tape, played

from trainscope.record.inference import StepInference
from trainscope.sync.loop import LoopState


class Watching(Tape):
    """Notes at each begin whether that step's loop is known to train."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[bool] = []
        self.inference = StepInference(
            begin=lambda: self.known.append(self.inference.known),
            end=lambda: None,
            end_last=lambda: None,
            drop=lambda: None,
        )

    def inside(self) -> bool | None:
        return self.inference.inside(sys._getframe(1))


@pytest.mark.parametrize("loads", [False, True])
def test_a_loop_with_no_optimizer_is_left_where_something_else_runs(loads: bool) -> None:
    """As the gradients of a Fisher matrix, in a program that has an optimizer elsewhere."""
    inside: list[bool | None] = []

    def program(t: Watching) -> None:
        for _ in range(3):
            t.train()
        for _ in range(3):
            if loads:
                t.fetch()
            t.forward()
            t.backward()
            inside.append(t.inside())
        if loads:
            t.fetch("no data")
        for _ in range(2):
            t.evaluate()
        inside.append(t.inside())

    tape = played(program, Watching())
    assert inside == [True, True, True, False]
    assert tape.inference.steps == 6


def test_a_turn_of_another_loop_is_on_trial_until_it_trains() -> None:
    """As a prediction by a model in train mode, behind the training."""

    def program(t: Watching) -> None:
        for _ in range(3):
            t.train()
        for _ in range(2):
            t.forward()

    tape = played(program, Watching())
    assert tape.known == [False, True, True, False]
    assert tape.inference.steps == 3


def test_what_waits_on_trial_is_no_training() -> None:
    loop = LoopState()
    loop.started = loop.trial = True
    loop.step = 0
    assert loop.during() == "setup"
    loop.step = 3
    assert loop.during() == "between"
    loop.trial = False
    assert loop.during() == "training"
