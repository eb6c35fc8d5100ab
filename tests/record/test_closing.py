"""Closing is done once, completely, however it is asked for."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial

import pytest

from trainscope.record.closing import Closing


def test_stages_are_done_once_and_in_order() -> None:
    done: list[int] = []
    closing = Closing([lambda n=n: done.append(n) for n in range(4)])
    assert closing.run(nullcontext()) == closing.run(nullcontext()) == []
    assert done == [0, 1, 2, 3]


def test_a_stage_that_fails_is_tried_again_and_told_and_the_next_ones_are_done() -> None:
    fault, done = OSError("disk"), list[str]()

    def fails() -> None:
        done.append("tried")
        raise fault

    def fails_once() -> None:
        done.append("once")
        if done.count("once") == 1:
            raise fault

    closing = Closing([fails, fails_once, lambda: done.append("last")])
    assert closing.run(nullcontext()) == [fault, fault, fault]
    assert closing.closed
    assert done == ["tried", "tried", "once", "once", "last"]


def test_what_failed_is_left_for_the_next_call() -> None:
    done: list[str] = []
    broken = [True]

    def stage(name: str) -> None:
        if name in "bd" and broken[0]:
            raise RecursionError
        done.append(name)

    closing = Closing([partial(stage, name) for name in "abcde"])
    assert len(closing.run(nullcontext())) == 4
    assert done == ["a", "c", "e"]
    broken[0] = False
    assert closing.run(nullcontext()) == []
    assert done == ["a", "c", "e", "b", "d"]
    assert closing.closed


@pytest.mark.parametrize("rude", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_an_interrupt_left_is_done_by_the_next_call(rude: type[BaseException]) -> None:
    done: list[str] = []

    def interrupted() -> None:
        done.append("again")
        if len(done) == 2:
            raise rude

    closing = Closing([lambda: done.append("first"), interrupted, lambda: done.append("last")])
    with pytest.raises(rude):
        closing.run(nullcontext())
    assert done == ["first", "again"]
    closing.run(nullcontext())
    assert done == ["first", "again", "again", "last"]


def test_a_call_in_the_middle_of_a_stage_does_nothing() -> None:
    done: list[str] = []
    closing: Closing

    def handler() -> None:
        assert closing.run(nullcontext()) == []
        done.append("first")

    closing = Closing([handler, lambda: done.append("last")])
    closing.run(nullcontext())
    assert done == ["first", "last"]


def test_a_call_on_another_thread_waits_for_the_one_under_way() -> None:
    began, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        began.set()
        assert may_end.wait(10)
        done.append("closed")

    closing = Closing([slow])
    first = threading.Thread(target=closing.run, args=(nullcontext(),))
    first.start()
    assert began.wait(10)
    second = threading.Thread(
        target=lambda: (closing.run(nullcontext()), done.append("second returned"))
    )
    second.start()
    second.join(0.05)
    assert second.is_alive()
    may_end.set()
    first.join(10)
    second.join(10)
    assert done == ["closed", "second returned"]


def test_a_forked_child_closes_nothing() -> None:
    done: list[int] = []
    closing = Closing([lambda: done.append(1)])
    closing.forget()
    assert closing.run(nullcontext()) == []
    assert done == []
