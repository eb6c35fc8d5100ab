"""Turns of loops told from the places of events; each program is a function that emits them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from tape import Tape, seen


def plain(t: Tape) -> None:
    for _ in range(5):
        t.forward()
        t.backward()
        t.optimize()


def backward_only(t: Tape) -> None:
    for _ in range(5):
        t.backward()


def one_line(t: Tape) -> None:
    # fmt: off
    for _ in range(5): t.forward(), t.backward(), t.optimize()  # noqa: E701
    # fmt: on


def while_true(t: Tape) -> None:
    step = 0
    while True:
        t.forward()
        if step == 5:
            break
        t.backward()
        step += 1


def in_the_condition(t: Tape) -> None:
    left = 5

    def loss_is_high() -> bool:
        nonlocal left
        t.forward()
        left -= 1
        return left >= 0

    while loss_is_high():
        t.backward()
        t.optimize()


def ternary(t: Tape) -> None:
    for i in range(5):
        t.backward() if i % 2 else t.grad() or t.backward()


def arms(t: Tape) -> None:
    for i in range(5):
        if i % 3 == 0:
            t.forward()
            t.backward()
        elif i % 3 == 1:
            t.backward()
        else:
            t.optimize()
            t.backward()


def matched(t: Tape) -> None:
    for i in range(5):
        match i % 2:
            case 0:
                t.backward()
            case _:
                t.backward()


def retried(t: Tape) -> None:
    for i in range(5):
        t.forward()
        try:
            if i == 2:
                raise MemoryError
            t.backward()
        except MemoryError:
            t.backward()
        t.optimize()


def skips_batches(t: Tape) -> None:
    for i in range(8):
        if i in (0, 3, 7):
            continue
        t.forward()
        t.backward()
        t.optimize()


def step_function(t: Tape) -> None:
    def step(i: int) -> None:
        t.forward()
        if i % 2:
            t.backward()
        else:
            t.backward()
        t.optimize()

    def fit() -> None:
        for i in range(5):
            step(i)

    fit()


def step_function_with_early_return(t: Tape) -> None:
    def step(i: int) -> None:
        if i % 2:
            t.backward()
            return
        t.backward()
        t.optimize()

    for i in range(5):
        step(i)


def dispatched(t: Tape) -> None:
    def first() -> None:
        t.forward()
        t.backward()

    def second() -> None:
        t.forward()
        t.backward()
        t.optimize()

    for i in range(5):
        (first, second)[i % 2]()


def epochs(t: Tape) -> None:
    def epoch() -> None:
        for _ in range(2):
            t.forward()
            t.backward()
            t.optimize()

    t.evaluate()
    for _ in range(2):
        epoch()
        for _ in range(3):
            t.evaluate()
    for _ in range(1):
        epoch()


def generator(t: Tape) -> None:
    def train() -> Iterator[int]:
        for i in range(5):
            t.forward()
            t.backward()
            yield i
            t.optimize()

    for _ in train():
        t.evaluate()


def prepared_by_generator(t: Tape) -> None:
    def batches() -> Iterator[int]:
        for i in range(5):
            t.evaluate()
            yield i

    for _ in batches():
        t.forward()
        t.backward()


def closures(t: Tape) -> None:
    for _ in range(5):

        def closure() -> None:
            t.forward()
            t.backward()

        t.optimize(closure)


def comprehension(t: Tape) -> None:
    def step() -> None:
        t.forward()
        t.backward()

    assert [step() for _ in range(5)]


def nested_comprehension(t: Tape) -> None:
    assert [[t.forward(), t.backward()] for _ in range(2) for _ in range(2)]
    assert {i: t.backward() for i in range(1)}


def mapped(t: Tape) -> None:
    def step(_: int) -> int:
        t.forward()
        t.backward()
        return 0

    for _ in range(1):
        assert sum(map(step, range(3))) == 0
    for _ in map(step, range(2)):
        t.optimize()


def with_rollout(t: Tape) -> None:
    for _ in range(1):
        for _ in range(4):
            t.forward()
        for _ in range(5):
            t.forward()
            t.backward()
            t.optimize()


def accumulated(t: Tape) -> None:
    for i in range(5):
        t.forward()
        t.backward()
        if i % 2:
            t.optimize()


def interrupted(t: Tape) -> None:
    for i in range(9):
        t.forward()
        if i == 5:
            return
        t.backward()
        t.optimize()


def by_transform(t: Tape) -> None:
    """``torch.func.grad``, whose frames are torch's, and rows of a Jacobian."""
    torch_code = compile(
        "def gradient(f, t, rows):\n f()\n for _ in range(rows):\n  t.on_event('grad')",
        f"{torch.__path__[0]}/func.py",
        "exec",
    )
    torch_s: dict[str, Callable[..., None]] = {}
    exec(torch_code, torch_s)

    def task() -> None:
        torch_s["gradient"](t.forward, t.inference, 1)
        t.forward()

    for _ in range(5):
        torch_s["gradient"](task, t.inference, 3)
        t.backward()
        t.optimize()


FIVE = [
    plain,
    backward_only,
    by_transform,
    one_line,
    while_true,
    in_the_condition,
    arms,
    matched,
    retried,
    skips_batches,
    step_function,
    step_function_with_early_return,
    dispatched,
    generator,
    prepared_by_generator,
    closures,
    comprehension,
    nested_comprehension,
    with_rollout,
    accumulated,
    interrupted,
]
WITHIN_A_LINE = [ternary, mapped]
"""Told apart by columns, which Python 3.10 does not have."""
if sys.version_info >= (3, 11):
    FIVE += WITHIN_A_LINE


@pytest.mark.parametrize("program", FIVE, ids=lambda program: program.__name__)
def test_five_turns_train(program: Callable[[Tape], None]) -> None:
    tape = seen(program)
    assert tape.inference.counted_by.startswith("trainscope run: "), tape.inference.counted_by
    assert tape.inference.steps == 5
    tape.inference.finish()
    assert tape.log.count("end") == 5
    assert tape.log.count("begin") == 5 + tape.log.count("drop")
    assert all(one != other for one, other in zip(tape.log, tape.log[1:], strict=False))


def test_loops_one_after_the_other_add_up() -> None:
    tape = seen(epochs)
    line = epochs.__code__.co_firstlineno + 2
    assert tape.inference.counted_by.startswith("trainscope run: turns of the loop at ")
    assert tape.inference.counted_by.endswith(f"test_inference.py:{line}")
    assert tape.inference.steps == 6
    tape.inference.finish()
    assert tape.log == ["begin", "end"] * 6


def test_turns_that_only_evaluate_are_told_and_not_counted() -> None:
    def program(t: Tape) -> None:
        for training in (True, False, True):
            for _ in range(2):
                if training:
                    t.forward()
                    t.backward()
                else:
                    t.evaluate()

    tape = seen(program)
    assert tape.inference.steps == 4
    assert tape.inference.counted_by.endswith("; 2 turns that only evaluated are no steps")


def test_one_backward_in_no_loop_is_one_step() -> None:
    def program(t: Tape) -> None:
        t.forward()
        t.backward()
        t.optimize()
        for _ in range(3):
            t.evaluate()

    tape = seen(program)
    assert tape.inference.steps == 1
    assert "in no loop, is the one step" in tape.inference.counted_by


def separate_ifs(t: Tape) -> None:
    for i in range(6):
        if i % 2 == 0:
            t.backward()
        if i % 2 == 1:
            t.backward()


def separate_ifs_in_a_function(t: Tape) -> None:
    def step(i: int) -> None:
        if i % 2 == 0:
            t.backward()
        if i % 2 == 1:
            t.backward()

    for i in range(6):
        step(i)


def both_or_one(t: Tape) -> None:
    for i in range(6):
        if i % 2 == 0:
            t.forward()
        if i % 3 == 0:
            t.backward()


def skips_backwards(t: Tape) -> None:
    for i in range(6):
        t.forward()
        if i != 3:
            t.backward()


def skips_outside_too(t: Tape) -> None:
    for _ in range(2):
        for i in range(3):
            t.forward()
            if i == 1:
                t.backward()


def nested_by_its_second_caller(t: Tape) -> None:
    def inner() -> None:
        for _ in range(2):
            t.backward()

    for _ in range(2):
        inner()
    for _ in range(2):
        inner()
        t.backward()


def unrolled(t: Tape) -> None:
    t.backward()
    t.backward()


def recursion(t: Tape) -> None:
    def train(left: int) -> None:
        if left:
            t.backward()
            train(left - 1)

    train(3)


def recursion_with_loops(t: Tape) -> None:
    def train(left: int) -> None:
        for _ in range(2):
            t.backward()
            if left:
                train(left - 1)

    train(2)


def without_source(t: Tape) -> None:
    exec("for _ in range(3): t.backward()", {"t": t})


def only_grad(t: Tape) -> None:
    for _ in range(3):
        t.grad()


def nothing(t: Tape) -> None:
    t.forward()


DOUBTS = {
    separate_ifs: "one turn cannot be told from the next",
    separate_ifs_in_a_function: "one turn cannot be told from the next",
    both_or_one: "",
    skips_backwards: "1 turn of the loop at ",
    skips_outside_too: "",
    nested_by_its_second_caller: "and also outside it in the loop at ",
    unrolled: "2 training backwards ran, in no loop",
    recursion: "3 training backwards ran, in no loop",
    recursion_with_loops: "runs inside itself (recursion)",
    without_source: "the source of <module> in <string> cannot be followed",
    only_grad: "gradients came from torch.autograd.grad alone (3 calls)",
    nothing: "are not followed. A launcher has to start trainscope: torchrun … -m trainscope run ",
}
if sys.version_info < (3, 11):
    DOUBTS |= {program: "cannot be followed" for program in WITHIN_A_LINE}


@pytest.mark.parametrize("program", DOUBTS, ids=lambda program: program.__name__)
def test_a_doubt_is_said_with_its_reason(program: Callable[[Tape], None]) -> None:
    tape = seen(program)
    assert tape.inference.counted_by.startswith("cannot tell: ")
    assert DOUBTS[program] in tape.inference.counted_by
    tape.inference.finish()
    assert tape.log.count("begin") == tape.log.count("end") + tape.log.count("drop")


@pytest.mark.parametrize(("turns", "sure"), [(40, True), (6, False)])
def test_turns_whose_forward_and_backward_stand_in_arms_are_told_apart_by_their_number(
    turns: int, sure: bool
) -> None:
    """As in a fine-tuning trainer with a choice of losses and a choice of engines."""

    def loss_of(t: Tape, smoothed: bool) -> None:
        if smoothed:
            t.forward()
            t.forward()
        else:
            t.forward()

    def backward(t: Tape, engine: str) -> None:
        if engine == "other":
            return
        elif engine == "torch":
            t.backward()

    def trainer(t: Tape) -> None:
        for i in range(turns):
            loss_of(t, False)
            backward(t, "torch")
            if i % 2:
                t.optimize()

    tape = seen(trainer)
    counted_by = tape.inference.counted_by
    assert counted_by.startswith("trainscope run: " if sure else "cannot tell: ")
    tape.inference.finish()
    assert tape.log == ["begin", "end"] * turns


def test_replays_of_a_captured_backward_are_not_told_from_what_was_before() -> None:
    """As torch's documentation captures a whole step, after a few on a side stream."""

    def program(t: Tape) -> None:
        for _ in range(3):
            t.train()
        t.forward()
        t.inference.on_event("captured backward")
        t.optimize()
        for _ in range(20):
            assert t.inference.inside(sys._getframe()), "its replays train"

    tape = seen(program)
    assert tape.inference.steps is None
    assert tape.inference.counted_by == (
        "cannot tell: a training backward was captured into a CUDA graph: replays are not seen"
    )


def test_turns_that_did_not_train_are_not_counted_where_they_may_be_parts_of_others() -> None:
    def program(t: Tape) -> None:
        for i in range(40):
            if i != 7:
                t.forward()
            if i not in (7, 20):
                t.backward()

    tape = seen(program)
    line = program.__code__.co_firstlineno + 1
    assert tape.inference.counted_by.endswith(f"test_inference.py:{line}"), "and no more than that"
    tape.inference.finish()
    assert tape.inference.steps == tape.log.count("end") == 38


@pytest.mark.parametrize(
    ("every", "steps", "words"),
    [
        (2, None, ""),
        (4, None, ""),
        (5, 32, "; 7 turns that ran no backward are no steps"),
        (20, 38, "; 1 turn that ran no backward is no step"),
    ],
)
def test_turns_that_leave_the_backward_out_are_no_steps_where_they_are_few(
    every: int, steps: int | None, words: str
) -> None:
    def bad_batches(t: Tape) -> None:
        for at in range(1, 40):
            t.forward()
            if at % every == 0:
                continue
            t.backward()
            t.optimize()

    tape = seen(bad_batches)
    counted_by = tape.inference.counted_by
    tape.inference.finish()
    if steps is None:
        assert counted_by.startswith("cannot tell: ")
        return
    assert (tape.inference.steps, tape.log.count("end")) == (steps, steps)
    assert tape.log.count("drop") == 39 - steps
    assert counted_by.endswith(words)


def evaluated(program: Callable[[Tape, Callable[[], None]], None]) -> list[bool]:
    """What each call of the function that a program is given was told of its place."""
    told: list[bool] = []

    def run(t: Tape) -> None:
        program(t, lambda: told.append(t.inference.evaluates(sys._getframe(1))))

    seen(run)
    return told


def test_a_loop_that_runs_models_in_eval_mode_now_and_then_evaluates() -> None:
    def program(t: Tape, ask: Callable[[], None]) -> None:
        def validate() -> None:
            ask()
            for _ in range(2):
                ask()  # of the first batch before anything is known of this loop
                t.evaluate()
            ask()

        for step in range(12):
            ask()
            t.forward()
            t.backward()
            t.optimize()
            if step % 6 == 5:
                validate()

    first, second = (False, False, True, False), (False, True, True, False)
    assert evaluated(program) == [*(False,) * 6, *first, *(False,) * 6, *second]


@pytest.mark.parametrize("every", [1, 3])
def test_what_runs_in_every_few_steps_is_a_part_of_them(every: int) -> None:
    def rollouts(t: Tape, ask: Callable[[], None]) -> None:
        for step in range(24):
            for _ in range(4 if step % every == 0 else 0):
                t.evaluate()
                ask()
            t.forward()
            t.backward()

    assert set(evaluated(rollouts)) == {False}


def test_a_loop_that_trains_too_and_one_of_models_in_train_mode_do_not_evaluate() -> None:
    def program(t: Tape, ask: Callable[[], None]) -> None:
        def epoch(trains: bool) -> None:
            for _ in range(12):
                ask()
                if trains:
                    t.forward()
                    t.backward()
                else:
                    t.evaluate()

        epoch(True)
        epoch(False)
        t.inference._eval_mode = lambda: False
        for _ in range(2):
            ask()
            t.evaluate()

    assert set(evaluated(program)) == {False}
