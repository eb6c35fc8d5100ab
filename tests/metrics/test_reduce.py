"""Intervals of steps become one record each, exactly."""

from __future__ import annotations

import math

import pytest
import torch
from metrics_rig import Rig

from trainscope.metrics.reduce import Intervals
from trainscope.trace.metrics import MetricRecord


def record(step: int, **values: float) -> MetricRecord:
    return MetricRecord(step, 1000 + step, values)


def rows(records: list[MetricRecord]) -> list[tuple[int, int, dict[str, float]]]:
    return [(r.step, r.time_unix_ns, dict(r.values)) for r in records]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("mean", [10, 2.5, 5.0]),
        ("last", [10, 4, 3]),
        ("sum", [10, 10, 15]),
        ("min", [10, 1, 3]),
        ("max", [10, 4, 7]),
    ],
)
def test_each_interval_ends_at_a_multiple(how: str, expected: list[float]) -> None:
    intervals = Intervals(4, how)
    values = [10, 1, 2, 3, 4, 7, 5, 3]  # steps 0 | 1 2 3 4 | 5 6 7
    complete = intervals.add([record(step, x=v) for step, v in enumerate(values)])
    assert rows(complete) == [
        (0, 1000, {"x": expected[0]}),
        (4, 1004, {"x": expected[1]}),
    ]
    assert rows(intervals.finish()) == [(7, 1007, {"x": expected[2]})]
    assert intervals.finish() == []


def test_a_reduction_for_each_name_and_the_mean_for_the_rest() -> None:
    intervals = Intervals(2, {"tokens": "sum", "lr": "last"})
    intervals.add(
        [record(1, tokens=2**60, lr=0.1, loss=1.0), record(2, tokens=1, lr=0.2, loss=2.0)]
    )
    assert rows(intervals.finish()) == [(2, 1002, {"tokens": 2**60 + 1, "lr": 0.2, "loss": 1.5})]


def test_a_step_logged_in_several_calls_and_a_value_logged_seldom() -> None:
    intervals = Intervals(10, "mean")
    complete = intervals.add(
        [record(5, loss=1.0), record(5, lr=0.5), record(13, val=3.0), record(31, loss=2.0)]
    )
    assert rows(complete) == [(10, 1005, {"loss": 1.0, "lr": 0.5}), (20, 1013, {"val": 3.0})]


@pytest.mark.parametrize("how", ["mean", "sum", "min", "max"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_in_the_interval_shows(how: str, place: int) -> None:
    values = [1.0, 2.0, 3.0]
    values[place] = math.nan
    intervals = Intervals(3, how)
    intervals.add([record(step + 1, x=v) for step, v in enumerate(values)])
    (reduced,) = intervals.finish()
    assert math.isnan(reduced.values["x"])


def test_the_logger_writes_intervals_and_still_names_the_step_of_a_nan() -> None:
    with Rig(every=5, reduce={"n": "sum"}) as rig, pytest.warns(RuntimeWarning, match="step 7"):
        for step in range(11):
            loss = torch.tensor(math.nan if step == 7 else float(step))
            rig.logger.log(step, {"loss": loss, "n": torch.tensor(step)})
        found = rig.close()
    assert [step for step, _ in found] == [0, 5, 10]
    assert [values["n"] for _, values in found] == [0, 15, 40]
    assert found[1] == (5, {"loss": 3.0, "n": 15})
    assert math.isnan(found[2][1]["loss"])
    assert rig.logger.state().nonfinite[0][:2] == ("loss", 7)
    assert rig.logger.latest("loss") == 10.0


def test_single_precision_is_summed_in_double() -> None:
    """A float32 running sum would lose every addition here."""
    with Rig(every=4, reduce="sum") as rig:
        for step, value in enumerate([0.0, 2.0**24, 1.0, 1.0, 1.0]):
            rig.logger.log(step, {"x": torch.tensor(value)})
        assert rig.close() == [(0, {"x": 0.0}), (4, {"x": 2.0**24 + 3})]


@pytest.mark.parametrize("value", [0.1, 1e-3, -0.7, 1e308, 64, float("inf")])
def test_the_mean_of_a_value_that_does_not_change_is_that_value(value: float) -> None:
    for every in (3, 10, 100):
        intervals = Intervals(every, "mean")
        intervals.add([record(step, lr=value) for step in range(1, every + 1)])
        ((_, _, values),) = rows(intervals.finish())
        assert values == {"lr": value}
