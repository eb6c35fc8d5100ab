"""``benchmark`` and ``compare``: who gets a time, who does not, and what stands beside it."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from fake_gpu import FakeGpu
from torch._subclasses.fake_tensor import FakeTensorMode

import trainscope as ts
from trainscope.bench import ceilings, timing
from trainscope.bench.ceiling_store import CeilingStore
from trainscope.bench.device import device_of
from trainscope.bench.model import Comparison, Measurement
from trainscope.bench.subject import Subject
from trainscope.errors import BenchmarkError, ConfigError


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine copies a byte a nanosecond and does a FLOP a nanosecond, without measuring."""
    monkeypatch.setattr(ceilings, "_copy", lambda device: 1e9)
    monkeypatch.setattr(ceilings, "_matmul", lambda device, dtype: 1e9)
    monkeypatch.setattr(CeilingStore, "get", lambda self, key: None)
    monkeypatch.setattr(CeilingStore, "put", lambda self, key, value: None)


def work(gpu: FakeGpu, gpu_ns: int, *, result: float = 2.0, cpu_ns: int = 5_000):
    def fn(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(gpu_ns, cpu_ns=cpu_ns)
        return x * result

    return fn


def test_a_measurement_is_exact_on_an_exact_gpu(gpu: FakeGpu, x: torch.Tensor) -> None:
    found = ts.bench.benchmark(work(gpu, 80_000), x, timer=gpu.timer(), trials=20, name="twice")
    assert found.time is not None
    assert found.wall is not None
    assert (found.name, found.timer, found.cache) == ("twice", "cuda-events", "cold")
    assert (found.time.median_us, found.time.mean_us, found.time.trials) == (80.0, 80.0, 20)
    assert (found.wall.median_us, found.cpu_us, found.first_call_us) == (85.0, 5.0, 5.0)
    assert (found.flags, found.agreement, found.refused) == ((), None, None)
    assert found.environment.torch == torch.__version__
    assert Measurement.model_validate_json(found.model_dump_json()) == found


def test_functions_are_compared_by_their_medians(gpu: FakeGpu, x: torch.Tensor) -> None:
    impls = {"slow": work(gpu, 80_000), "fast": work(gpu, 20_000)}
    found = ts.bench.compare(impls, (x,), reference="slow", timer=gpu.timer(), trials=20)
    assert [row.name for row in found.rows] == ["slow", "fast"]
    ratio = found["fast"].ratio
    assert ratio is not None
    assert (ratio.to, ratio.value, ratio.low, ratio.high) == ("slow", 4.0, 4.0, 4.0)
    assert Comparison.model_validate_json(found.model_dump_json()) == found


def test_a_wrong_result_gets_no_time_and_is_never_called_again(
    gpu: FakeGpu, x: torch.Tensor
) -> None:
    calls: list[int] = []

    def wrong(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 0

    impls = {"right": work(gpu, 20_000), "wrong": wrong}
    found = ts.bench.compare(impls, (x,), reference="right", timer=gpu.timer(), trials=20)
    row = found["wrong"]
    assert (row.time, row.wall, row.cpu_us, row.first_call_us) == (None, None, None, None)
    assert "largest error" in (row.refused or "")
    assert len(calls) == 1
    assert found["right"].time is not None


def test_benchmark_raises_where_the_result_is_wrong(x: torch.Tensor) -> None:
    with pytest.raises(BenchmarkError, match="zeros does not give what the reference gives"):
        ts.bench.benchmark(torch.zeros_like, x, reference=torch.exp, name="zeros")


def test_one_that_only_has_the_name_of_the_reference_has_to_agree_too(x: torch.Tensor) -> None:
    def exp(x: torch.Tensor) -> torch.Tensor:
        return x * 0

    right = partial(torch.exp)  # it has no name of its own
    for reference, impls in (
        (torch.exp, {"exp": exp, "right": right}),
        (right, {"reference": exp, "right": torch.exp}),
    ):
        found = ts.bench.compare(impls, (x,), reference=reference, trials=2)
        assert "largest error" in (found.rows[0].refused or "")
        assert found["right"].time is not None
        assert found.reference not in impls


def test_one_that_raises_is_told_and_the_others_are_timed(gpu: FakeGpu, x: torch.Tensor) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no kernel for this shape")

    impls = {"right": work(gpu, 20_000), "broken": broken}
    found = ts.bench.compare(impls, (x,), reference="right", timer=gpu.timer(), trials=20)
    assert found["broken"].refused == "it raised ValueError: no kernel for this shape"
    assert found["right"].time is not None


def test_where_the_reference_raises_nothing_can_be_compared(x: torch.Tensor) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    with pytest.raises(BenchmarkError, match="the reference broken raised ValueError: no"):
        ts.bench.compare({"exp": torch.exp}, (x,), reference=broken)


def test_work_on_another_stream_is_timed_by_the_host_and_flagged(
    gpu: FakeGpu, x: torch.Tensor
) -> None:
    def apart(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(2_000_000, stream=1)
        return x * 2

    impls = {"here": work(gpu, 2_000_000), "apart": apart}
    found = ts.bench.compare(impls, (x,), reference="here", timer=gpu.timer(), trials=20)
    row = found["apart"]
    assert row.time is not None
    assert row.ratio is not None
    assert (row.timer, row.time.median_us) == ("perf_counter", 2005.0)
    assert [flag.code for flag in row.flags] == ["other-stream"]
    assert row.ratio.value == 1.0


def test_waiting_and_dispatch_are_flagged(gpu: FakeGpu, x: torch.Tensor) -> None:
    def waits(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(100_000)
        gpu.synchronize()
        return x * 2

    def chatty(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            gpu.launch(3_000)
        return x * 2

    impls = {"waits": waits, "chatty": chatty}
    found = ts.bench.compare(impls, (x,), reference="chatty", timer=gpu.timer(), trials=20)
    codes = {row.name: [flag.code for flag in row.flags] for row in found.rows}
    assert codes == {"waits": ["syncs"], "chatty": ["dispatch-bound"]}
    time = found["chatty"].time
    assert time is not None
    assert time.median_us == 30.0


def test_a_queue_that_is_full_is_not_counted_as_cpu_time(gpu: FakeGpu, x: torch.Tensor) -> None:
    def held_up(x: torch.Tensor) -> torch.Tensor:
        behind = gpu.done[0] - gpu.now
        gpu.launch(1_000, cpu_ns=3_000_000)
        if behind > 4_000_000:  # the cover is still running: the driver takes no more launches
            gpu.now = gpu.done[0]
        return x * 2

    found = ts.bench.benchmark(held_up, x, timer=gpu.timer(), trials=20)
    assert found.cpu_us == 3_000.0
    assert [flag.code for flag in found.flags] == ["dispatch-bound"]


def test_writing_into_the_inputs_is_flagged_and_the_others_still_see_them_as_given(
    gpu: FakeGpu, x: torch.Tensor
) -> None:
    before = x.clone()
    seen: list[torch.Tensor] = []

    def writes(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(1_000_000)
        return x.mul_(2) if torch.equal(x, before) else before * 2

    def after(x: torch.Tensor) -> torch.Tensor:
        gpu.launch(1_000_000)
        seen.append(x.clone())
        return before * 2

    impls = {"writes": writes, "after": after}
    found = ts.bench.compare(
        impls, (x,), reference=lambda x: before.to(x.dtype) * 2, timer=gpu.timer(), trials=20
    )
    assert [flag.code for flag in found["writes"].flags] == ["changes-inputs"]
    assert torch.equal(seen[0], before)
    assert found["after"].flags == ()


@pytest.mark.usefixtures("known_ceilings")
def test_a_time_below_what_the_ceiling_allows_is_not_believable(
    gpu: FakeGpu, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Subject("copy", lambda: gpu.launch(125_000))
    monkeypatch.setattr(timing, "copy_of", lambda bytes_moved, device: copy)
    impls = {"honest": work(gpu, 100_000), "magic": work(gpu, 90_000)}
    found = ts.bench.compare(
        impls, (x,), reference="honest", bytes_moved=100_000, timer=gpu.timer(), trials=20
    )
    shares = {row.name: row.roofline.share for row in found.rows if row.roofline is not None}
    assert shares == {"honest": 1.0, "magic": pytest.approx(10 / 9)}
    assert found["honest"].flags == ()
    assert [flag.code for flag in found["magic"].flags] == ["not-believable"]
    assert found.copy_of_bytes is not None
    of_copy = found["honest"].of_copy
    assert of_copy is not None
    assert (of_copy.to, of_copy.value) == ("copy", 1.25)


@pytest.mark.usefixtures("known_ceilings")
def test_flops_are_held_against_the_matmul_ceiling(gpu: FakeGpu, x: torch.Tensor) -> None:
    found = ts.bench.benchmark(work(gpu, 100_000), x, flops=50_000, timer=gpu.timer(), trials=20)
    assert found.roofline is not None
    assert (found.roofline.bound, found.roofline.share) == ("compute", 0.5)


def test_the_backward_is_timed_without_its_forward(gpu: FakeGpu, x: torch.Tensor) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            gpu.launch(700_000)
            return x * 2

        @staticmethod
        def backward(ctx: object, *grads: torch.Tensor) -> torch.Tensor:
            gpu.launch(30_000)
            return grads[0] * 2

    impls = {"doubled": Doubled.apply}
    found = ts.bench.compare_backward(
        impls, (x,), reference=lambda x: x * 2, timer=gpu.timer(), trials=20
    )
    time, checked = found["doubled"].time, found["doubled"].agreement
    assert time is not None
    assert checked is not None
    assert time.median_us == 30.0
    assert (checked.ok, checked.rule) == (True, "float64")
    assert x.grad is None
    assert not x.requires_grad


def test_a_wrong_gradient_gets_no_time(x: torch.Tensor) -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x.exp() + (x - x.detach())

    impls = {"exp": torch.exp, "wrong": wrong}
    found = ts.bench.compare_backward(impls, (x,), reference="exp", trials=2, seconds=0.01)
    assert found["wrong"].time is None
    assert found["exp"].time is not None


def test_on_the_cpu_the_same_call_works_and_says_what_dispatch_costs(x: torch.Tensor) -> None:
    found = ts.bench.benchmark(torch.neg, x[:1], trials=20)
    assert found.time is not None
    assert (found.timer, found.cache, found.wall) == ("perf_counter", "warm", None)
    assert "dispatch-bound" in [flag.code for flag in found.flags]
    large = ts.bench.benchmark(torch.exp, torch.ones(1 << 18), trials=20)
    assert "dispatch-bound" not in [flag.code for flag in large.flags]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trials": 1}, "trials=1 is not allowed"),
        ({"trials": 2.5}, r"trials=2\.5 is not allowed"),
        ({"seconds": 0}, "seconds=0 is not allowed"),
        ({"cache": "cold"}, "cache='cold' needs a CUDA device"),
        ({"reference": "exq"}, r"reference='exq' is none of impls: exp; did you mean 'exp'\?"),
        ({"baseline": "log"}, "baseline='log' is none of impls: exp"),
    ],
)
def test_an_argument_that_is_not_allowed_is_told(
    x: torch.Tensor, options: dict[str, object], said: str
) -> None:
    arguments = {"reference": "exp", **options}
    with pytest.raises(ConfigError, match=said):
        ts.bench.compare({"exp": torch.exp}, (x,), **arguments)  # type: ignore[arg-type]


def test_the_device_is_that_of_the_work(monkeypatch: pytest.MonkeyPatch, x: torch.Tensor) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    gpu = torch.device("cuda", 1)
    assert device_of((x,), x) == torch.device("cpu")
    assert device_of((x,), {"loss": 0.5}) == gpu  # a step on the GPU, fed from the CPU
    assert device_of((), None) == gpu
    with FakeTensorMode():
        y = torch.empty(4, device="cuda:0")
    assert device_of((x,), y) == torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert device_of((), None) == torch.device("cpu")


def test_a_device_that_is_not_supported_is_told(x: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match="device 'meta' is not supported; pass cpu, cuda"):
        ts.bench.benchmark(torch.exp, x, device="meta")


def test_no_functions_or_one_named_as_the_copy_is_an_error(x: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match="impls is empty"):
        ts.bench.compare({}, (x,), reference=torch.exp)
    with pytest.raises(ConfigError, match="choose another"):
        ts.bench.compare({"copy": torch.exp}, (x,), reference="copy")
