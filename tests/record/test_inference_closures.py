"""An optimizer that calls a closure runs a turn's forward and backward, wherever it stands.

And one that a hook of the backward calls ends the turn's training with that backward.
"""

from __future__ import annotations

import sys

import pytest
from tape import Tape, seen


@pytest.mark.parametrize("turns", [1, 12])
def test_a_closure_that_a_library_dispatches_to_beside_gradients_of_a_test(turns: int) -> None:
    """As deepxde's loop: a chain of ``elif`` with no ``else``, and gradients in its test.

    L-BFGS may need one turn only.
    """

    def program(t: Tape) -> None:
        def closure() -> None:
            t.forward()
            t.backward()

        def step(backend: str) -> None:
            if backend == "other":
                t.grad()
            elif backend == "torch":
                t.optimize(closure)

        for i in range(turns):
            step("torch")
            if i % 5 == 0:
                t.forward()
                t.grad()

    tape = seen(program)
    assert tape.inference.steps == turns
    assert tape.inference.counted_by.startswith("trainscope run: turns of the loop at ")
    tape.inference.finish()
    assert tape.ended == turns


def test_closures_of_which_a_turn_may_run_either_or_both_cannot_be_told() -> None:
    def program(t: Tape) -> None:
        def closure() -> None:
            t.forward()
            t.backward()

        for i in range(12):
            if i % 2 == 0:
                t.optimize(closure)
            if i % 2 == 1:
                t.optimize(closure)

    assert seen(program).inference.counted_by.startswith("cannot tell: ")


def test_behind_a_loop_whose_backward_runs_the_optimizer_nothing_trains() -> None:
    inside: list[bool | None] = []

    def program(t: Tape) -> None:
        def where() -> None:
            inside.append(t.inference.inside(sys._getframe(1)))

        for _ in range(6):
            t.forward()
            t.backward()
            t.inference.on_event("optimizer in backward")
            where()
        where()

    tape = seen(program)
    assert inside == [True] * 6 + [False]
    assert tape.inference.steps == tape.ended == 6
