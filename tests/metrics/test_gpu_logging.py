"""On a GPU: values in stream order, one launch for a call, and never a wait."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from metrics_rig import Doubled, Rig, until

from trainscope.errors import MetricError
from trainscope.metrics.gather import load_awaited
from trainscope.metrics.gather_kernel import GATHER_LIMIT

pytestmark = pytest.mark.gpu

BIG = 2**53 + 1
LONG_CYCLES = 1_000_000_000  # of torch.cuda._sleep: about half a second


@pytest.fixture
def syncs_are_errors() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def on_gpu(value: Any, **settings: Any) -> torch.Tensor:
    return torch.tensor(value, **settings).cuda()


def test_each_dtype_arrives_exactly() -> None:
    call = {
        "f32": on_gpu(0.1),
        "f64": on_gpu(0.1, dtype=torch.float64),
        "bf16": on_gpu(1 / 3, dtype=torch.bfloat16),
        "f16": on_gpu(1 / 3, dtype=torch.float16),
        "i64": on_gpu(BIG),
        "i8": on_gpu(-7, dtype=torch.int8),
        "u8": on_gpu(200, dtype=torch.uint8),
        "u64": on_gpu(2**63, dtype=torch.uint64),
        "bool": on_gpu(True),
        "one": on_gpu([2.5]),
        "cpu": torch.tensor(0.25),
        "lr": 1e-3,
        "parameter": torch.nn.Parameter(on_gpu(1.5)),
    }
    with Rig() as rig:
        rig.logger.log(0, call)
        rows = rig.close()
    assert rows == [
        (
            0,
            {
                "f32": float(torch.tensor(0.1)),
                "f64": 0.1,
                "bf16": 0.333984375,
                "f16": 0.333251953125,
                "i64": BIG,
                "i8": -7,
                "u8": 200,
                "u64": 2**63,
                "bool": 1,
                "one": 2.5,
                "cpu": 0.25,
                "lr": 1e-3,
                "parameter": 1.5,
            },
        )
    ]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.uint16, 2**16 - 1),
        (torch.uint32, 2**32 - 1),
        (torch.uint64, 2**64 - 1),
        (torch.float8_e5m2, 1.75),
        (torch.float8_e4m3fn, 1.75),
        (torch.int16, -(2**15)),
        (torch.bool, 1),
    ],
)
def test_dtypes_that_have_no_fused_copy_arrive_too(
    dtype: torch.dtype, value: float, count: int
) -> None:
    call = {f"m{i}": torch.tensor(value, dtype=dtype).cuda() for i in range(count)}
    call["loss"] = on_gpu(0.5)
    with Rig() as rig:
        rig.logger.log(0, call)
        rig.logger.log(1, call)
        expected = {**{f"m{i}": value for i in range(count)}, "loss": 0.5}
        assert rig.close() == [(0, expected), (1, expected)]


def test_updates_in_place_after_the_call_do_not_show() -> None:
    total = torch.zeros((), device="cuda")
    with Rig() as rig:
        for step in range(500):
            total += step
            rig.logger.log(step, {"total": total})
        total.fill_(-1)
        assert rig.close() == [(s, {"total": float(s * (s + 1) // 2)}) for s in range(500)]


def test_outputs_of_a_cuda_graph_are_overwritten_by_each_replay() -> None:
    x = torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    with Rig() as rig:
        for step in range(200):
            x.fill_(step)
            graph.replay()
            rig.logger.log(step, {"y": y})
        assert rig.close() == [(s, {"y": 2.0 * s + 1}) for s in range(200)]


def test_logging_inside_a_capture_is_refused() -> None:
    x = torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with Rig() as rig:
        with torch.cuda.graph(graph):
            y = x + 1
            with pytest.raises(MetricError, match="CUDA graph is being captured, so 'y'"):
                rig.logger.log(0, {"y": y})
        graph.replay()
        rig.logger.log(1, {"y": y})
        assert rig.close() == [(1, {"y": 1.0})]


def test_a_capture_is_not_broken_by_the_worker_polling_meanwhile() -> None:
    x = torch.ones((), device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with Rig(interval_s=0.01) as rig:
        rig.logger.log(0, {"x": x})
        rig.logger.flush()  # allocates
        torch.cuda.synchronize()
        torch.cuda._sleep(LONG_CYCLES)
        rig.logger.log(1, {"x": x})
        until(lambda: rig.logger._due)
        rig.logger.end_step(1)
        assert rig.logger.state().written == 1
        with torch.cuda.stream(side):
            graph.capture_begin()  # unlike torch.cuda.graph, it does not wait for the GPU first
            y = x + 1
            time.sleep(0.05)
            graph.capture_end()
        assert rig.logger.state().written == 1, "the copy landed before the capture was over"
        graph.replay()
        torch.cuda.synchronize()
        assert y.item() == 2.0
        assert rig.close() == [(0, {"x": 1.0}), (1, {"x": 1.0})]


def test_log_does_not_wait_for_a_busy_gpu() -> None:
    x = torch.ones((), device="cuda")
    with Rig(interval_s=0.02) as rig:
        rig.logger.log(0, {"x": x})
        rig.logger.flush()
        torch.cuda.synchronize()
        torch.cuda._sleep(2 * LONG_CYCLES)
        done = torch.cuda.Event()
        done.record()
        for step in range(1, 100):
            rig.logger.log(step, {"x": x})
            rig.logger.end_step(step)
            time.sleep(0.001)
        assert not done.query(), "the GPU was to be busy all the while"
        assert rig.logger.state().written == 1
        assert rig.close() == [(s, {"x": 1.0}) for s in range(100)]


def test_values_logged_on_several_streams() -> None:
    streams = [torch.cuda.Stream() for _ in range(3)]
    with Rig() as rig:
        for step in range(60):
            with torch.cuda.stream(streams[step % 3]):
                torch.cuda._sleep(1_000_000)
                rig.logger.log(step, {"x": torch.full((), float(step), device="cuda")})
        assert rig.close() == [(s, {"x": float(s)}) for s in range(60)]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.usefixtures("syncs_are_errors")
def test_two_hundred_steps_without_a_sync() -> None:
    with Rig(interval_s=0.01) as rig:
        for step in range(200):
            loss = torch.full((), float(step), device="cuda")
            rig.logger.log(
                step,
                {"loss": loss, "half": loss.half(), "n": loss.long(), "lr": 0.1, "one": loss[None]},
            )
            rig.logger.end_step(step)
            time.sleep(0.001)
        written_live = rig.logger.state().written
        rows = rig.close()
    assert written_live > 0
    assert rows == [
        (s, {"loss": float(s), "half": float(s), "n": s, "lr": 0.1, "one": float(s)})
        for s in range(200)
    ]
    assert rig.logger.state().dropped == 0


def kernels_of(log: Any, calls: int = 10) -> list[str]:
    """Names of what ran on the GPU in so many calls."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    log()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(calls):
            log()
        torch.cuda.synchronize()
    return [event.name for event in profiled.events() if event.device_type == DeviceType.CUDA]


def test_one_launch_for_a_call_and_where_torch_copies_one_for_each_dtype() -> None:
    floats = {f"f{i}": on_gpu(float(i)) for i in range(4)}
    mixed = {**floats, "h0": on_gpu(0.5).half(), "h1": on_gpu(1.5).half(), "n": on_gpu(3)}
    many = {f"f{i}": on_gpu(float(i)) for i in range(GATHER_LIMIT)} | {"n": on_gpu(3)}
    with Rig(interval_s=60.0) as rig:
        for call in (floats, mixed, many):
            rig.logger.log(0, call)
        load_awaited()
        assert len(kernels_of(lambda: rig.logger.log(0, floats))) == 10
        assert len(kernels_of(lambda: rig.logger.log(0, mixed))) == 10
        assert len(kernels_of(lambda: rig.logger.log(0, many))) == 20
        assert kernels_of(lambda: rig.logger.log(0, {"lr": 0.1})) == []
        assert kernels_of(lambda: rig.logger.log(0, {})) == []
        assert kernels_of(lambda: rig.logger.end_step(0)) == []


def test_no_graph_is_kept_alive() -> None:
    loss = Doubled.apply(torch.ones(3, device="cuda", requires_grad=True)).sum()
    with Rig(interval_s=60.0) as rig:
        rig.logger.log(0, {"loss": loss})
        assert Doubled.in_graph() is not None
        del loss
        assert Doubled.in_graph() is None
        assert rig.close() == [(0, {"loss": 6.0})]


def test_the_last_values_arrive_although_the_loop_does_not_come_back() -> None:
    with Rig(interval_s=0.02) as rig:
        rig.logger.log(0, {"loss": on_gpu(0.5)})
        until(lambda: rig.logger.latest("loss") == 0.5)


def test_gpu_memory_is_flat() -> None:
    gc.collect()  # what earlier tests have left is not to be freed in between
    value = torch.zeros((), device="cuda")
    with Rig(interval_s=0.02) as rig:
        sizes: list[int] = []
        for step in range(100_000):
            rig.logger.log(step, {"x": value})
            if step in (50_000, 99_999):
                sizes.append(torch.cuda.memory_allocated())
        rig.close()
    assert sizes[1] <= sizes[0]
