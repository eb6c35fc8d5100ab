"""Warm-up, the number of trials, and the order of the rounds, on a clock that only calls move."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_gpu import FakeGpu, launches

from trainscope.bench.subject import Subject, first_call
from trainscope.bench.timers import CpuTimer
from trainscope.bench.trials import Effort, take, warm_up


class Clock:
    def __init__(self) -> None:
        self.now = 0
        self.called: list[str] = []

    def read(self) -> int:
        return self.now

    def takes(self, name: str, *times_ns: int) -> Subject:
        """Calls take these times in turn, then the last for ever."""
        left = list(times_ns)

        def call() -> None:
            self.called.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return Subject(name, call)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_warm_up_ends_once_three_windows_agree(clock: Clock) -> None:
    warmed = warm_up(CpuTimer(clock.read), clock.takes("f", 5_000_000_000, 2_000_000))
    # 1 call that compiles, 1 after it, then windows of 10 ms
    assert (warmed.calls, warmed.settled, warmed.call_ns) == (1 + 1 + 5 + 5, True, 2_000_000)
    assert warmed.spent_ns == 5_000_000_000 + 11 * 2_000_000


def test_warm_up_calls_at_least_five_times_however_long_they_take(clock: Clock) -> None:
    warmed = warm_up(CpuTimer(clock.read), clock.takes("f", 3_000_000_000))
    assert (warmed.calls, warmed.settled) == (5, True)


def test_warm_up_of_what_never_settles_ends_after_a_second_and_says_so(clock: Clock) -> None:
    times = [100_000_000 * (1 + (turn % 2)) for turn in range(100)]
    warmed = warm_up(CpuTimer(clock.read), clock.takes("f", *times))
    assert not warmed.settled
    assert 1_000_000_000 <= warmed.spent_ns <= 1_400_000_000


def test_a_call_that_is_prepared_is_never_called_twice_in_a_row(clock: Clock) -> None:
    subject = clock.takes("call", 1_000)
    both = Subject("b", subject.call, prepare=lambda: clock.called.append("prepare"))
    warm_up(CpuTimer(clock.read), both)
    pairs = set(zip(clock.called[::2], clock.called[1::2], strict=True))
    assert pairs == {("prepare", "call")}


@pytest.mark.parametrize(
    ("call_ns", "calls", "trials"),
    [
        (100, 1000, 1000),  # a trial of 100 us, and as many as half a second holds
        (50_000, 2, 1000),
        (1_000_000, 1, 500),
        (10_000_000, 1, 50),
        (400_000_000, 1, 20),  # never fewer
    ],
)
def test_trials_and_calls_follow_from_the_time_of_a_call(
    clock: Clock, call_ns: int, calls: int, trials: int
) -> None:
    (taken,) = take([clock.takes("f", call_ns)], CpuTimer(clock.read), Effort())
    assert (taken.calls, len(taken.times_ns)) == (calls, trials)
    assert set(taken.times_ns) == {call_ns}
    assert taken.wall_ns == []


def test_a_fast_function_gets_a_hundred_trials_though_a_slow_one_is_beside_it() -> None:
    gpu = FakeGpu()
    fast, slow = launches(gpu, 1, 10_000), launches(gpu, 1, 50_000_000)
    taken = take([fast, slow], gpu.timer(), Effort(seconds=0.5))
    assert [len(each.times_ns) for each in taken] == [100, 100]


def test_every_round_has_each_function_once_and_the_order_changes(clock: Clock) -> None:
    names = ("a", "b", "c")
    subjects = [clock.takes(name, 200_000) for name in names]
    timer = CpuTimer(clock.read)
    calls: list[str] = []
    timer.trial = _noting(timer.trial, calls)
    take(subjects, timer, Effort(trials=60))
    rounds = [tuple(calls[at : at + 3]) for at in range(0, len(calls), 3)]
    assert len(rounds) == 60
    assert {tuple(sorted(each)) for each in rounds} == {names}
    assert len(set(rounds)) == 6  # every order comes
    for name in names:
        assert 10 <= sum(each[0] == name for each in rounds) <= 30


def test_the_first_call_is_timed_without_warm_up_and_without_a_wait() -> None:
    gpu = FakeGpu()
    _, took_ns = first_call(launches(gpu, 1, 50_000_000, cpu_ns=7_000), gpu.clock)
    assert took_ns == 7_000


def _noting(trial: Callable, calls: list[str]) -> Callable:
    def noted(subject: Subject, *rest: object) -> object:
        calls.append(subject.name)
        return trial(subject, *rest)

    return noted
