"""What may be logged, its exact value on the other side, and what is refused in which words."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from metrics_rig import Doubled, Rig, logged

from trainscope.errors import MetricError

BIG = 2**53 + 1


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (3, 3),
        (2**100, 2**100),
        (0.1, 0.1),
        (True, 1),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float64(0.1), 0.1),
        (np.int64(BIG), BIG),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), 1),
        (np.array([7]), 7),
        (np.array(0.5), 0.5),
        (Fraction(1, 4), 0.25),
        (torch.tensor(0.1), float(np.float32(0.1))),
        (torch.tensor(0.1, dtype=torch.float64), 0.1),
        (torch.tensor(1 / 3, dtype=torch.bfloat16), 0.333984375),
        (torch.tensor(1 / 3, dtype=torch.float16), 0.333251953125),
        (torch.tensor(1.75).to(torch.float8_e5m2), 1.75),
        (torch.tensor(BIG), BIG),
        (torch.tensor(-(2**63)), -(2**63)),
        (torch.tensor(2**64 - 1, dtype=torch.uint64), 2**64 - 1),
        (torch.tensor(2**32 - 1, dtype=torch.uint32), 2**32 - 1),
        (torch.tensor(-7, dtype=torch.int8), -7),
        (torch.tensor(True), 1),
        (torch.tensor([2.5]), 2.5),
        (torch.tensor([[[4]]]), 4),
        (torch.tensor([1.0, 2.0])[1:], 2.0),
        (torch.tensor(3.0).expand(1, 1), 3.0),
        (torch.nn.Parameter(torch.tensor(1.5)), 1.5),
        (torch.tensor(math.inf), math.inf),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:trainscope. metric")
def test_a_value_arrives_exactly(value: Any, arrives: float | int) -> None:
    assert logged({"x": value}) == [(0, {"x": arrives})]
    ((_, values),) = logged({"x": value})
    assert type(values["x"]) is type(arrives)


def test_nan_arrives_as_nan() -> None:
    with pytest.warns(RuntimeWarning, match="'x' is nan at step 0"):
        ((_, values),) = logged({"x": torch.tensor(math.nan)})
    assert math.isnan(values["x"])


def test_mixed_dtypes_and_numbers_keep_the_order_given() -> None:
    call = {
        "a": torch.tensor(1.5, dtype=torch.bfloat16),
        "b": 2,
        "c": torch.tensor(BIG),
        "d": torch.tensor(0.1, dtype=torch.float64),
        "e": torch.tensor([0.25]),
        "f": torch.tensor(False),
    }
    ((_, values),) = logged(call)
    assert list(values.items()) == [
        ("a", 1.5),
        ("b", 2),
        ("c", BIG),
        ("d", 0.1),
        ("e", 0.25),
        ("f", 0),
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(2, 3), "'x' is a tensor of shape [2, 3]; a metric is one number: log x.mean()"),
        (torch.ones(0), "'x' is a tensor of shape [0]"),
        (np.ones(4), "'x' is an array of shape [4]"),
        (torch.tensor(1j), "'x' has dtype torch.complex64; allowed are floats, integers and bool"),
        (torch.tensor(1.0, device="meta"), "'x' is on device meta"),
        ("high", "'x' is a str ('high'); allowed are real numbers"),
        (None, "'x' is a NoneType (None)"),
        (1j, "'x' is a complex"),
        (Decimal("0.1"), "'x' is a Decimal"),
    ],
)
def test_what_is_no_number_is_refused_by_name(value: Any, words: str) -> None:
    with Rig() as rig:
        with pytest.raises(MetricError) as caught:
            rig.logger.log(0, {"fine": 1.0, "x": value})
        rig.logger.log(1, {"fine": 2.0})
        assert rig.close() == [(1, {"fine": 2.0})], "a refused call must leave nothing behind"
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["step", "time_unix_ns", ""])
def test_names_that_are_taken(name: str) -> None:
    with Rig() as rig, pytest.raises(MetricError, match="name"):
        rig.logger.log(0, {name: 1.0})


def test_a_later_change_in_place_does_not_show() -> None:
    total = torch.zeros(())
    with Rig() as rig:
        for step in range(5):
            total += step
            rig.logger.log(step, {"total": total})
        total.fill_(-1)
        assert rig.close() == [(s, {"total": float(s * (s + 1) // 2)}) for s in range(5)]


def test_no_graph_is_kept_alive() -> None:
    loss = Doubled.apply(torch.ones(3, requires_grad=True)).sum()
    with Rig(interval_s=60.0) as rig:
        rig.logger.log(0, {"loss": loss, "same": loss.reshape(1)})
        assert Doubled.in_graph() is not None
        del loss
        assert Doubled.in_graph() is None
        assert rig.close() == [(0, {"loss": 6.0, "same": 6.0})]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_grad_mode_is_left_as_it_was(mode: Any) -> None:
    weight = torch.ones(3, requires_grad=True)
    with Rig() as rig:
        with mode():
            before = torch.is_grad_enabled()
            loss = (weight * 2).sum()
            rig.logger.log(0, {"loss": loss})
            assert torch.is_grad_enabled() == before
        with torch.inference_mode():
            rig.logger.log(1, {"loss": weight.sum()})
        rig.logger.log(2, {"loss": weight.sum()})
        assert rig.close() == [(0, {"loss": 6.0}), (1, {"loss": 3.0}), (2, {"loss": 3.0})]


def test_rows_are_widened_by_one_call_for_each_dtype_of_several_and_one_for_all_others() -> None:
    """Whatever their shapes of one element."""
    from torch.profiler import profile

    call = {
        "a": torch.tensor(1.0),
        "b": torch.tensor([2.0]),
        "c": torch.tensor(3.0),
        "d": torch.tensor(4),
        "e": torch.tensor(5.0, dtype=torch.float64),
    }
    with Rig() as rig:
        rig.logger.log(0, call)  # the first one allocates
        with profile() as profiled:
            rig.logger.log(1, call)
    counts = {event.key: event.count for event in profiled.key_averages()}
    assert counts["aten::_foreach_copy_"] == 2
    assert "aten::item" not in counts
