"""The worker runs its tasks, survives them, and ends when told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest
from metrics_rig import until

from trainscope.metrics.worker import Worker


def test_tasks_run_each_interval_on_one_daemon_thread() -> None:
    seen: list[tuple[str, bool]] = []
    worker = Worker(0.005)
    worker.add(
        lambda: seen.append((threading.current_thread().name, threading.current_thread().daemon))
    )
    worker.start()
    worker.start()
    until(lambda: len(seen) >= 3)
    worker.close()
    assert set(seen) == {("trainscope-worker", True)}
    assert not worker.running


def test_wake_and_again_in_come_before_the_interval() -> None:
    rounds: list[float] = []
    worker = Worker(60.0)

    def task() -> None:
        rounds.append(time.monotonic())
        if len(rounds) == 2:
            worker.again_in(0.01)

    worker.add_prompt(task)
    worker.start()
    until(lambda: len(rounds) == 1)
    worker.wake()
    until(lambda: len(rounds) == 3)
    worker.close()


def test_only_prompt_tasks_run_when_woken_within_an_interval() -> None:
    ran: list[str] = []

    def prompt() -> None:
        ran.append("prompt")
        if len(ran) < 20:
            worker.again_in(0.001)

    worker = Worker(60.0)
    worker.add(lambda: ran.append("other"))
    worker.add_prompt(prompt)
    worker.start()
    until(lambda: len(ran) == 20)
    worker.run_now()
    worker.close()
    assert ran == ["other", *["prompt"] * 19, "other", "prompt", "other", "prompt"]


def test_a_task_that_fails_is_dropped_with_one_warning_and_the_others_go_on() -> None:
    good: list[int] = []
    bad: list[int] = []

    def fail() -> None:
        bad.append(1)
        raise ValueError("boom")

    worker = Worker(60.0)
    worker.add(fail)
    worker.add(lambda: good.append(1))
    with pytest.warns(RuntimeWarning, match=r"fail failed and is switched off: ValueError"):
        worker.start()
        until(lambda: len(good) == 1)
    worker.run_now()
    worker.close()
    assert len(bad) == 1
    assert len(good) >= 3


def test_run_now_has_run_every_task_when_it_returns() -> None:
    """Also when a round is under way that has passed the task already."""
    rounds: list[int] = []
    worker = Worker(60.0)
    worker.add(lambda: rounds.append(1))
    worker.add(lambda: time.sleep(0.05))
    worker.start()
    for _ in range(5):
        before = len(rounds)
        worker.wake()
        time.sleep(0.01)
        worker.run_now()
        assert len(rounds) > before
    worker.close()


def test_close_runs_each_task_a_last_time() -> None:
    rounds: list[int] = []
    worker = Worker(60.0)
    worker.start()
    time.sleep(0.01)
    worker.add(lambda: rounds.append(1))
    worker.close()
    assert rounds
    before = len(rounds)
    worker.close()
    worker.start()
    assert len(rounds) == before


def test_close_leaves_a_task_behind_that_hangs() -> None:
    go_on = threading.Event()
    worker = Worker(60.0)
    worker.add(lambda: go_on.wait(30) and None)
    worker.start()
    with pytest.warns(RuntimeWarning, match=r"still busy after 0\.05 s"):
        worker.close(timeout_s=0.05)
    go_on.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_no_worker() -> None:
    ran: list[int] = []
    worker = Worker(0.005)
    worker.add(lambda: ran.append(os.getpid()))
    worker.start()
    until(lambda: bool(ran))
    child = os.fork()
    if child == 0:
        worker.wake()
        worker.run_now()
        worker.close()
        worker.start()
        os._exit(1 if worker.running or os.getpid() in ran else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    worker.close()
    assert set(ran) == {os.getpid()}


class MadeLulls:
    """A loop whose next lull begins at ``come``."""

    def __init__(self) -> None:
        self.at_lull: Callable[[], object] | None = None

    def come(self) -> None:
        """A lull begins."""
        at_lull, self.at_lull = self.at_lull, None
        if at_lull is not None:
            at_lull()


def test_work_waits_for_the_loops_lulls_while_they_come() -> None:
    ran: list[str] = []
    lulls = MadeLulls()
    worker = Worker(0.1)
    worker.follow(lulls)
    worker.add(lambda: ran.append("round"))
    worker.add_prompt(lambda: ran.append("prompt"))
    worker.start()
    until(lambda: lulls.at_lull is not None)
    assert ran == ["round", "prompt"], "the first round, before the first interval"
    lulls.come()
    until(lambda: len(ran) == 4)
    worker.wake_in_lull()
    time.sleep(0.02)
    assert ran == ["round", "prompt"] * 2
    lulls.come()
    until(lambda: len(ran) == 5)
    assert ran[-1] == "prompt"
    worker.close()


def test_work_does_not_wait_for_lulls_that_do_not_come() -> None:
    ran: list[str] = []
    worker = Worker(0.01)
    worker.follow(MadeLulls())
    worker.add(lambda: ran.append("round"))
    worker.add_prompt(lambda: ran.append("prompt"))
    worker.start()
    until(lambda: ran.count("round") == 3)
    rounds = len(ran)
    worker.wake_in_lull()
    until(lambda: len(ran) > rounds)
    worker.close()


def test_being_asked_to_run_now_is_no_lull() -> None:
    lulls = MadeLulls()
    worker = Worker(0.05)
    worker.follow(lulls)
    worker.start()
    until(lambda: lulls.at_lull is not None)
    worker.run_now()
    assert not worker._lulls_come
    worker.close()
