"""Turns in which errors are raised and caught; each program is a function that emits events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from tape import Tape, seen


def in_a_finally_behind_an_arm_that_leaves(t: Tape) -> None:
    for i in range(5):
        try:
            t.forward()
            if i % 2:
                t.backward()
                continue
            t.backward()
        finally:
            t.backward()


def in_the_handler_of_what_an_arm_raises(t: Tape) -> None:
    for i in range(5):
        try:
            t.forward()
            if i % 2:
                t.backward()
                raise ValueError
            t.backward()
        except ValueError:
            t.backward()


def behind_a_loop_that_its_arm_would_have_left(t: Tape) -> None:
    for i in range(5):
        try:
            t.forward()
            if i % 2:
                for _ in range(3):
                    t.forward()
                    raise ValueError
                continue
        except ValueError:
            t.backward()
        t.backward()


def behind_an_error_that_a_context_manager_keeps(t: Tape) -> None:
    for i in range(5):
        with suppress(ValueError):
            t.forward()
            if i % 2:
                t.backward()
                if i == 3:
                    raise ValueError
                raise ValueError
        t.backward()


@pytest.mark.parametrize(
    "program",
    [
        in_a_finally_behind_an_arm_that_leaves,
        in_the_handler_of_what_an_arm_raises,
        behind_a_loop_that_its_arm_would_have_left,
        behind_an_error_that_a_context_manager_keeps,
    ],
)
def test_what_an_error_jumps_to_is_in_the_same_turn(program: Callable[[Tape], None]) -> None:
    tape = seen(program)
    counted_by = tape.inference.counted_by
    tape.inference.finish()
    assert (tape.inference.steps, tape.ended) == (5, 5)
    assert counted_by.startswith("trainscope run: turns of the loop at ")


def test_an_error_may_have_left_out_what_stands_behind_in_a_try() -> None:
    def program(t: Tape) -> None:
        for i in range(6):
            try:
                if i % 2 == 0:
                    t.backward()
                    int("no number")
                t.backward()
            except ValueError:
                pass

    tape = seen(program)
    assert "one turn cannot be told from the next" in tape.inference.counted_by
