"""The CUDA timer on a GPU whose times are exact: what it tells, and what it finds out."""

from __future__ import annotations

import pytest
from fake_gpu import FLUSH_NS, FakeGpu, launches

from trainscope.bench.flags import leaves_work_behind
from trainscope.bench.subject import Subject
from trainscope.bench.timers import Probe, Trial
from trainscope.bench.trials import Effort, take

STEADY = Probe(waits=False, left_behind_ns=0.0, cpu_ns=40_000.0)


def test_a_trial_is_the_gpu_time_alone_though_the_cpu_is_slower() -> None:
    gpu = FakeGpu()
    trial = gpu.timer().trial(launches(gpu, 8, 1_000), 1, STEADY)
    assert trial == Trial(time_ns=8_000.0, cpu_ns=40_000.0)


def test_without_the_cover_the_gpu_would_have_waited_for_the_launches() -> None:
    gpu = FakeGpu()
    waiting = Probe(waits=True, left_behind_ns=0.0, cpu_ns=40_000.0)
    trial = gpu.timer("warm").trial(launches(gpu, 8, 1_000), 1, waiting)
    assert trial == Trial(time_ns=41_000.0, cpu_ns=40_000.0)
    assert gpu.slept == []


def test_the_cover_lasts_longer_than_the_launches_of_all_calls() -> None:
    gpu = FakeGpu()
    gpu.timer("warm").trial(launches(gpu, 8, 1_000), 10, STEADY)
    assert gpu.slept[-1] == 1.5 * 10 * 40_000 + 20_000


def test_a_trial_whose_launches_outlasted_the_cover_is_taken_again() -> None:
    gpu = FakeGpu()
    held_up = iter([500_000, 900_000])

    def call() -> None:
        gpu.launch(1_000)
        gpu.launch(1_000, cpu_ns=next(held_up, 5_000))

    trial = gpu.timer("warm").trial(Subject("held up", call), 1, STEADY)
    assert trial == Trial(time_ns=2_000.0, cpu_ns=905_000.0)
    assert gpu.slept[-2:] == [80_000, 1_010_000]


def test_a_cpu_that_is_always_held_up_is_asked_three_times() -> None:
    gpu = FakeGpu()
    lasts = iter([1_000_000, 4_000_000, 16_000_000, 0])
    trial = gpu.timer("warm").trial(
        Subject("slow", lambda: gpu.launch(1_000, cpu_ns=next(lasts))), 1, STEADY
    )
    assert trial.cpu_ns == 16_000_000
    assert next(lasts) == 0


def test_wall_time_is_launch_and_gpu_work_from_idle_to_idle_and_no_flush() -> None:
    gpu = FakeGpu()
    assert gpu.timer().wall_ns(launches(gpu, 1, 50_000), 1) == 55_000
    assert gpu.flushes == 1
    assert gpu.now == 5_000 + FLUSH_NS + 55_000


def test_cold_flushes_before_every_call_and_warm_never() -> None:
    gpu = FakeGpu()
    subject = launches(gpu, 1, 50_000)
    cold, warm = gpu.timer("cold"), gpu.timer("warm")
    assert cold.calls_for(subject, 2_000.0) == 1
    assert warm.calls_for(subject, 2_000.0) == 100
    assert warm.calls_for(subject, 50_000.0) == 4
    assert warm.calls_for(subject, 1e9) == 1
    cold.trial(subject, 1, STEADY)
    assert gpu.flushes == 1
    warm.trial(subject, 4, STEADY)
    assert gpu.flushes == 1


def test_what_has_to_be_prepared_is_prepared_untimed_before_each_call() -> None:
    gpu = FakeGpu()
    subject = Subject("b", lambda: gpu.launch(7_000), prepare=lambda: gpu.launch(900_000))
    timer = gpu.timer("warm")
    assert timer.calls_for(subject, 7_000.0) == 1
    assert timer.trial(subject, 1, STEADY).time_ns == 7_000
    assert timer.wall_ns(subject, 1) == 12_000


def test_a_launch_is_no_wait_however_long_the_gpu_works() -> None:
    gpu = FakeGpu()
    assert gpu.timer().probe(launches(gpu, 3, 40_000_000)) == Probe(False, 0.0, 15_000.0)


@pytest.mark.parametrize("gpu_ns", [1_000, 40_000_000])
def test_a_function_that_waits_is_found_out(gpu_ns: int) -> None:
    gpu = FakeGpu()

    def call() -> None:
        gpu.launch(gpu_ns)
        gpu.synchronize()

    assert gpu.timer().probe(Subject("waits", call)).waits


def test_after_the_probe_the_sync_functions_and_the_debug_mode_are_as_before() -> None:
    gpu = FakeGpu()
    owned = gpu.Stream.synchronize, gpu.Event.synchronize
    gpu.timer().probe(launches(gpu, 1000, 1_000))
    assert (gpu.Stream.synchronize, gpu.Event.synchronize) == owned
    assert gpu.synchronize.__func__ is FakeGpu.synchronize
    assert gpu.sync_debug_mode == 0


def test_so_many_launches_that_the_queue_may_fill_are_not_taken_for_a_wait() -> None:
    gpu = FakeGpu()
    assert not gpu.timer().probe(launches(gpu, 1000, 1_000)).waits


def test_work_that_other_streams_still_do_is_found_and_joined_work_is_not() -> None:
    gpu = FakeGpu()

    def apart() -> None:
        gpu.launch(3_000_000, stream=1)

    def joined() -> None:
        apart()
        gpu.join(1)

    timer = gpu.timer()
    left = timer.probe(Subject("apart", apart)).left_behind_ns
    assert left == 3_000_000
    assert leaves_work_behind(left / 1000, 3_005.0)
    assert timer.probe(Subject("joined", joined)).left_behind_ns == 0


def test_a_time_that_events_cannot_tell_from_nothing_is_not_zero() -> None:
    """So that no ratio to it is infinite."""
    assert FakeGpu().timer().floor_ns() == 1


def test_taken_trials_are_exact_and_the_wall_is_taken_beside_them() -> None:
    gpu = FakeGpu()
    (taken,) = take([launches(gpu, 2, 30_000)], gpu.timer(), Effort(trials=25))
    assert taken.times_ns == [60_000.0] * 25
    assert taken.cpu_ns == [10_000.0] * 25
    assert taken.wall_ns == [65_000.0] * 20
    assert taken.warmed.settled
