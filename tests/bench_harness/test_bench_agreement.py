"""Which outputs are let pass: the rule against float64, the tolerance, and what never passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainscope.bench.agreement import RELATIVE, Expected, agreement, expected

F = torch.nn.functional


def wanted_of(fn: Any, *inputs: Any) -> Expected:
    return expected(lambda given: fn(*given), inputs, fn(*inputs))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(4096, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_another_right_way_to_compute_it_agrees(x: torch.Tensor, dtype: torch.dtype) -> None:
    x = x.to(dtype)
    found = agreement(F.gelu(x.double()).to(dtype), wanted_of(F.gelu, x))
    assert (found.ok, found.rule, found.reason) == (True, "float64", None)


def test_the_tanh_form_is_not_the_erf_form_where_the_dtype_can_tell(x: torch.Tensor) -> None:
    wide, narrow = x, x.to(torch.bfloat16)
    assert not agreement(F.gelu(wide, approximate="tanh"), wanted_of(F.gelu, wide)).ok
    assert agreement(F.gelu(narrow, approximate="tanh"), wanted_of(F.gelu, narrow)).ok


def test_twice_the_error_of_the_reference_is_allowed_and_no_more() -> None:
    exact = torch.tensor([1.0, -1.0], dtype=torch.float64)
    off = 1 / 8
    low = (exact + off).to(torch.bfloat16)
    # 2 x 0.125 and half a last place of 1.0
    allowed = 2 * off + 2**-8
    for error, ok in ((0.25, True), (0.2578125, False)):
        ours = (exact + error).to(torch.bfloat16)
        found = agreement(ours, Expected(low, exact))
        assert (found.ok, found.error, found.allowed) == (
            ok,
            float((ours - exact).abs().max()),
            allowed,
        )


def test_a_small_error_everywhere_is_found_by_its_mean_square(x: torch.Tensor) -> None:
    exact = torch.ones(1000, dtype=torch.float64)
    low = exact.float()
    low[0] += 1e-3  # the reference is far off once
    found = agreement(exact.float() + 5e-4, Expected(low, exact))
    assert not found.ok
    assert "root mean square error 0.0005" in (found.reason or "")


@pytest.mark.parametrize("wrong", [lambda y: y * 0, lambda y: y.roll(1), lambda y: y * 1.02])
def test_garbage_is_refused_in_the_coarsest_dtype(x: torch.Tensor, wrong: Any) -> None:
    x = x.to(torch.bfloat16)
    assert not agreement(wrong(F.gelu(x)), wanted_of(F.gelu, x)).ok


def test_where_the_reference_has_no_float64_the_tolerance_of_the_dtype_holds() -> None:
    def narrow(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            raise NotImplementedError("no float64 kernel")
        return x

    x = torch.full((8,), 2.0)
    allowed = RELATIVE[torch.float32] * 2
    near = agreement(x + 0.9 * allowed, wanted_of(narrow, x))
    assert (near.ok, near.rule, near.allowed) == (True, "tolerance", allowed)
    assert near.reason == (
        "the reference does not run in float64: NotImplementedError: no float64 kernel"
    )
    assert not agreement(x + 1.2 * allowed, wanted_of(narrow, x)).ok


def test_a_reference_that_leaves_float64_is_not_taken_for_float64() -> None:
    x = torch.ones(4)
    assert wanted_of(lambda x: x.float(), x).why_not == (
        "from float64 inputs the reference returns torch.float32"
    )


def test_a_tolerance_that_is_given_wins() -> None:
    x = torch.ones(4)
    wanted = wanted_of(torch.exp, x)
    assert agreement(torch.exp(x) * 1.01, wanted, tolerance=0.02).ok
    assert not agreement(torch.exp(x) * 1.03, wanted, tolerance=0.02).ok


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_stand_where_the_reference_has_them(value: float) -> None:
    x = torch.tensor([1.0, value, 2.0])
    wanted = wanted_of(torch.neg, x)
    assert agreement(-x, wanted).ok
    assert not agreement(torch.tensor([-1.0, 0.0, -2.0]), wanted).ok
    assert not agreement(torch.tensor([value, -value, -2.0]), wanted).ok


def test_where_the_reference_overflows_on_its_way_the_right_value_agrees() -> None:
    def by_the_square(x: torch.Tensor) -> torch.Tensor:
        return (x * x) / x

    x = torch.tensor([300.0, 1.0], dtype=torch.float16)
    wanted = wanted_of(by_the_square, x)  # inf, 1 in float16
    assert agreement(x.clone(), wanted).ok
    assert agreement(by_the_square(x), wanted).ok
    assert not agreement(torch.tensor([float("nan"), 1.0], dtype=torch.float16), wanted).ok


@pytest.mark.parametrize("run", [lambda x: x.softmax(-1), lambda x: x.float().softmax(-1)])
def test_one_bad_tile_among_many_is_refused_by_either_rule(run: Any) -> None:
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(2))
    x[0, 0] = 30.0  # the largest output is far above all others
    wanted = wanted_of(run, x)
    bad = run(x)
    assert agreement(bad.clone(), wanted).ok
    bad[128:160] = 0
    assert not agreement(bad, wanted).ok


def test_an_overflow_that_the_dtype_forces_is_no_error() -> None:
    x = torch.tensor([300.0, 1.0], dtype=torch.float16)
    wanted = wanted_of(torch.square, x)  # 90,000 in float64, inf in float16
    assert agreement(torch.square(x), wanted).ok


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        (torch.ones(3), "output 0 is (3,) torch.float32, the reference's (2,) torch.float32"),
        (torch.ones(2).double(), "torch.float64, the reference's (2,) torch.float32"),
        ((torch.ones(2), torch.ones(2)), "it returns 2 values, the reference 1"),
        (3.0, "output 0 is no tensor but float"),
    ],
)
def test_another_kind_of_output_is_refused_with_both(ours: Any, reason: str) -> None:
    found = agreement(ours, Expected(torch.ones(2), None))
    assert not found.ok
    assert reason in (found.reason or "")


def test_integers_and_booleans_have_to_be_equal() -> None:
    low = torch.tensor([1, 2, 3])
    assert agreement(low.clone(), Expected(low, None)).ok
    assert agreement(low + 1, Expected(low, None)).reason == "output 0: 3 of 3 values differ"


def test_every_output_of_several_is_compared() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(1))
    wanted = wanted_of(lambda x: (x.exp(), {"max": x.max()}), x)
    assert agreement((x.exp(), {"max": x.max()}), wanted).ok
    found = agreement((x.exp(), {"max": x.min()}), wanted)
    assert (found.reason or "").startswith("output 1: largest error")


def test_a_reference_that_returns_nothing_has_nothing_to_agree_with() -> None:
    found = agreement(None, Expected(None, None))
    assert (found.ok, found.rule) == (False, "none")
