"""The harness on a real GPU: every flag where it should be, and no flag where it should not."""

from __future__ import annotations

import statistics

import pytest
import torch
from gpu_functions import OnAnotherStream, manual_gelu, waits_by_item, waits_by_synchronize

import trainscope as ts
from trainscope.bench.cuda_timer import CudaTimer
from trainscope.bench.model import FlagCode, Measurement
from trainscope.bench.subject import Subject

pytestmark = pytest.mark.gpu

F = torch.nn.functional


def large() -> torch.Tensor:
    """64 M elements of fp32: a call takes about 0.12 ms on an H200."""
    return torch.randn(1 << 26, device="cuda")


def codes(found: Measurement) -> set[FlagCode]:
    return {flag.code for flag in found.flags}


def test_an_honest_memory_bound_function_reaches_the_ceiling_and_has_no_flag() -> None:
    x = large()
    found = ts.bench.benchmark(F.gelu, x, reference=F.gelu, bytes_moved=2 * x.nbytes)
    assert found.roofline is not None
    assert 0.8 < found.roofline.share <= 1.05
    assert codes(found) <= {"throttled"}


@pytest.mark.parametrize("fn", [waits_by_item, waits_by_synchronize])
@pytest.mark.parametrize("size", [1 << 10, 1 << 26])
def test_a_function_that_waits_is_flagged(fn: object, size: int) -> None:
    found = ts.bench.benchmark(fn, torch.randn(size, device="cuda"), seconds=0.1)  # type: ignore[arg-type]
    assert "syncs" in codes(found)


def test_many_launches_are_no_wait() -> None:
    x = torch.randn(1024, device="cuda")

    def many(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2000):
            x = x + 1
        return x

    found = ts.bench.benchmark(many, x, seconds=0.1)
    assert codes(found) >= {"dispatch-bound"}
    assert "syncs" not in codes(found)


def test_work_on_another_stream_is_flagged_and_timed_all_the_same() -> None:
    x = large()
    apart = ts.bench.benchmark(OnAnotherStream(join=False), x, seconds=0.1)
    joined = ts.bench.benchmark(OnAnotherStream(join=True), x, seconds=0.1)
    assert (apart.timer, joined.timer) == ("perf_counter", "cuda-events")
    assert "other-stream" in codes(apart)
    assert "other-stream" not in codes(joined)
    assert apart.time is not None
    assert joined.wall is not None
    assert apart.time.median_us == pytest.approx(joined.wall.median_us, rel=0.2)


def test_a_tiny_input_is_dispatch_bound_and_a_large_one_is_not() -> None:
    tiny = ts.bench.benchmark(manual_gelu, torch.randn(64, device="cuda"), seconds=0.1)
    assert "dispatch-bound" in codes(tiny)
    assert "dispatch-bound" not in codes(ts.bench.benchmark(manual_gelu, large(), seconds=0.1))


def test_a_kernel_that_skips_work_is_refused_and_claimed_bytes_are_not_believed() -> None:
    x = large()

    def half(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        y[: len(x) // 2] = F.gelu(x[: len(x) // 2])
        return y

    found = ts.bench.compare({"all": F.gelu, "half": half}, (x,), reference="all", seconds=0.1)
    assert found["half"].time is None
    boast = ts.bench.benchmark(F.gelu, x, bytes_moved=4 * x.nbytes, seconds=0.1)
    assert "not-believable" in codes(boast)


def test_the_naive_number_claims_less_than_the_truth() -> None:
    x = large()
    manual_gelu(x)
    found = ts.bench.benchmark(manual_gelu, x, seconds=0.1)
    assert found.time is not None
    assert found.first_call_us is not None
    assert found.first_call_us < found.time.median_us / 2


def test_the_time_of_a_busy_wait_is_that_of_its_cycles() -> None:
    timer = CudaTimer(torch.device("cuda", torch.cuda.current_device()))
    one, four = (
        Subject(str(cycles), lambda cycles=cycles: torch.cuda._sleep(cycles))
        for cycles in (1_000_000, 4_000_000)
    )
    probe = timer.probe(one)
    medians = [
        statistics.median(timer.trial(each, 1, probe).time_ns for _ in range(20))
        for each in (one, four)
    ]
    assert medians[1] / medians[0] == pytest.approx(4, rel=0.05)


def test_a_warm_cache_is_faster_than_a_flushed_one() -> None:
    x = torch.randn(1 << 21, device="cuda")  # 8 MiB: in and out fit into the L2
    cold = ts.bench.benchmark(F.gelu, x, seconds=0.1)
    warm = ts.bench.benchmark(F.gelu, x, cache="warm", seconds=0.1)
    assert cold.time is not None
    assert warm.time is not None
    assert warm.time.median_us < cold.time.median_us
    assert (cold.calls_per_trial, warm.calls_per_trial > 1) == (1, True)


def test_the_memory_peak_is_that_of_one_call() -> None:
    x = large()
    assert ts.bench.benchmark(torch.clone, x, seconds=0.1).memory_peak_bytes == x.nbytes


def test_the_backward_alone_moves_three_tensors() -> None:
    x = large()
    found = ts.bench.compare_backward(
        {"gelu": F.gelu}, (x,), reference="gelu", bytes_moved=3 * x.nbytes, seconds=0.1
    )
    share = found["gelu"].roofline
    assert share is not None
    assert 0.7 < share.share <= 1.05


def test_time_grows_as_the_work_does() -> None:
    def make(size: float):
        x = torch.randn(int(size) << 24, device="cuda")
        return lambda: F.gelu(x)

    assert ts.bench.scaling(make, seconds=0.1).linear


def test_nothing_of_torch_is_left_changed() -> None:
    before = (torch.cuda.synchronize, torch.cuda.get_sync_debug_mode())
    test_many_launches_are_no_wait()
    assert (torch.cuda.synchronize, torch.cuda.get_sync_debug_mode()) == before
    assert "synchronize" in vars(torch.cuda.Stream)
