"""Which steps the detector was whole in, in words."""

from __future__ import annotations

from trainscope.sync.armed_steps import ArmedSteps

CAUGHT, RESET = "a filter came first", "filters were reset"


def run(hidden: dict[int, str], steps: range) -> ArmedSteps:
    """`hidden[n]` is found at the end of step n."""
    made = ArmedSteps()
    for step in steps:
        made.begin(step, hidden.get(step - 1))
    made.end(hidden.get(steps[-1]))
    return made


def test_all_whole() -> None:
    made = run({}, range(480))
    assert (made.count, made.disarmed(), made.running) == (480, (), None)


def test_stretches_are_joined_by_reason() -> None:
    hidden = dict.fromkeys(range(120, 125), CAUGHT) | {125: RESET, 200: CAUGHT}
    made = run(hidden, range(100, 300))
    assert made.count == 200 - 7
    assert made.disarmed() == (
        "steps 120-124: a filter came first",
        "step 125: filters were reset",
        "step 200: a filter came first",
    )


def test_the_last_step_is_judged_at_the_end() -> None:
    assert run({9: RESET}, range(10)).disarmed() == ("step 9: filters were reset",)


def test_before_the_first_step() -> None:
    made = run({-1: RESET}, range(3))
    assert (made.count, made.disarmed(), made.disarmed_before()) == (3, (), RESET)


def test_a_reason_that_goes_on_into_the_steps_is_told_with_them() -> None:
    made = run({-1: RESET, 0: RESET}, range(3))
    assert (made.disarmed(), made.disarmed_before()) == (("step 0: filters were reset",), None)


def test_a_running_step_is_not_counted_yet() -> None:
    made = ArmedSteps()
    made.begin(0, None)
    assert (made.count, made.running) == (0, 0)
    made.begin(1, None)
    assert (made.count, made.running) == (1, 1)


def test_very_many_stretches_are_bounded() -> None:
    made = run({step: CAUGHT for step in range(0, 400, 2)}, range(400))
    words = made.disarmed()
    assert (len(words), words[0], words[-1]) == (65, "step 0: " + CAUGHT, "136 more steps")
