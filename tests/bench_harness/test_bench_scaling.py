"""``scaling``: time that grows as the work does, and what it says where it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_gpu import FakeGpu

import trainscope as ts
from trainscope.errors import ConfigError


def growing(gpu: FakeGpu, gpu_ns: Callable[[float], int]) -> Callable[[float], Callable]:
    return lambda size: lambda: gpu.launch(gpu_ns(size))


def scaled(gpu_ns: Callable[[float], int], **options: object) -> ts.bench.Scaling:
    gpu = FakeGpu()
    return ts.bench.scaling(growing(gpu, gpu_ns), timer=gpu.timer(), trials=20, **options)


def test_linear_work_is_linear() -> None:
    found = scaled(lambda size: int(100_000 * size))
    assert found.linear
    assert [point.time for point in found.points] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [point.median_us for point in found.points] == [100.0, 200.0, 300.0, 400.0, 500.0]
    assert found.verdict.startswith("time grows as the work does")
    assert found.fixed_us == pytest.approx(0, abs=1e-6)


def test_a_fixed_cost_is_told_in_microseconds() -> None:
    found = scaled(lambda size: int(300_000 + 100_000 * size))
    assert not found.linear
    assert found.fixed_us == pytest.approx(300)
    assert found.verdict == (
        "time grows slower than the work: 5 times the work takes 2 times as long; "
        "300 us of the smallest's 400 us go to what does not grow"
    )


def test_time_that_does_not_grow_is_work_that_is_not_done() -> None:
    found = scaled(lambda size: int(100_000 - 1_000 * size))
    assert not found.linear
    assert found.verdict.endswith("the larger sizes do not do the work that they should")


def test_time_that_grows_faster_than_the_work_is_told() -> None:
    found = scaled(lambda size: int(100_000 * size * size))
    assert not found.linear
    assert "5 times the work takes 25 times as long" in found.verdict


def test_the_work_of_a_size_may_be_its_cube() -> None:
    found = scaled(lambda size: int(100_000 * size**3), sizes=(1, 2, 4), work=lambda size: size**3)
    assert found.linear
    assert [point.work for point in found.points] == [1.0, 8.0, 64.0]


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (1, 1), (0, 1)])
def test_sizes_that_do_not_grow_are_an_error(sizes: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="pass at least two, in the order of growing work"):
        scaled(lambda size: 1_000, sizes=sizes)


def test_a_scaling_prints_its_points_and_goes_through_json() -> None:
    found = scaled(lambda size: int(100_000 * size), sizes=(1, 5))
    assert type(found).model_validate_json(found.model_dump_json()) == found
    lines = str(found).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["size", "work", "time", "median"],
        ["1", "1x", "1x", "100", "us"],
        ["5", "5x", "5x", "500", "us"],
    ]
