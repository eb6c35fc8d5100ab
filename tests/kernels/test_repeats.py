"""A call is done again the short way only where it is the same call, and nobody stands between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from trainscope_kernels import repeats
from trainscope_kernels.repeats import Repeats


@pytest.fixture(params=["torch's check", "own check"])
def calls(request: pytest.FixtureRequest, as_on_a_gpu: None, monkeypatch) -> Repeats:
    if request.param == "own check":
        monkeypatch.setattr(repeats, "_TensorGuards", None)
    return Repeats()


def doubled(*tensors: torch.Tensor) -> torch.Tensor:
    return tensors[0] * 2


def first(calls: Repeats, *tensors: torch.Tensor, options: Any = "a") -> Any:
    return calls.first(options, tensors, lambda: doubled)


X = torch.arange(12.0).view(3, 4)


def test_the_same_kind_is_found_whatever_its_values(calls) -> None:
    assert calls.again("a", X) is None
    assert torch.equal(first(calls, X), X * 2)
    assert torch.equal(calls.again("a", X + 1), (X + 1) * 2)


@pytest.mark.parametrize(
    "other",
    [
        X.view(4, 3),
        X.double(),
        X.t().contiguous().t(),
        X[:, ::2],
        X.clone().requires_grad_(),
        torch.nn.Parameter(X, requires_grad=False),
        torch.complex(X, X).conj().imag.clone(memory_format=torch.preserve_format)._neg_view(),
        torch._efficientzerotensor((3, 4)),
        X.to("meta"),
        X.to_sparse(),
        "no tensor",
    ],
    ids=[
        "shape", "dtype", "strides", "gaps", "requires grad", "parameter", "lazy negation",
        "zeros without memory", "meta", "sparse", "no tensor",
    ],
)  # fmt: skip
def test_another_kind_is_not_taken_for_it(calls, other) -> None:
    first(calls, X)
    assert calls.again("a", other) is None
    assert calls.again("b", X) is None


def test_one_of_several_tensors_is_enough(calls) -> None:
    first(calls, X, X.clone())
    assert calls.again("a", X, X.clone()) is not None
    assert calls.again("a", X, X.double()) is None
    assert calls.again("a", X.double(), X) is None


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def in_vmap(call: Callable[[], object]) -> object:
    seen = []
    torch.func.vmap(lambda each: (seen.append(call()), each)[1])(X)
    return seen[0]


def in_grad(call: Callable[[], object]) -> object:
    seen = []
    torch.func.grad(lambda each: (seen.append(call()), each.sum())[1])(X)
    return seen[0]


def in_trace(call: Callable[[], object]) -> object:
    seen = []
    torch.jit.trace(lambda each: (seen.append(call()), each * 2)[1], (X,), check_trace=False)
    return seen[0]


def within(*contexts: Callable[[], Any]) -> Callable[[Callable[[], object]], object]:
    def call_inside(call: Callable[[], object]) -> object:
        with contexts[0]():
            return call()

    return call_inside


SURROUNDINGS = {
    "dispatch mode": within(Mode),
    "function mode": within(lambda: torch.device("cpu")),
    "autocast": within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "profiler": within(
        lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    ),
    "forward-mode gradients": within(forward_ad.dual_level),
    "vmap": in_vmap,
    "grad": in_grad,
    "jit.trace": in_trace,
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("surroundings", SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_whoever_watches_is_not_gone_round(calls, surroundings) -> None:
    assert surroundings(lambda: first(calls, X)) is None
    first(calls, X)
    assert surroundings(lambda: calls.again("a", X)) is None
    assert calls.again("a", X) is not None


def test_inference_mode_is_a_kind_of_its_own(calls) -> None:
    first(calls, X)
    with torch.inference_mode():
        inside = torch.ones(3, 4)
        assert calls.again("a", inside) is None
        assert first(calls, inside).is_inference()
        assert calls.again("a", inside).is_inference()


def test_a_tensor_that_wants_a_gradient_is_remembered_nowhere(calls) -> None:
    leaf = X.clone().requires_grad_()
    assert first(calls, leaf) is None
    with torch.no_grad():
        assert first(calls, leaf) is None
    assert calls.again("a", leaf) is None


def test_another_current_device_takes_the_long_way(calls, monkeypatch) -> None:
    first(calls, X)
    monkeypatch.setattr(repeats, "_current_device", lambda: 1)
    assert calls.again("a", X) is None


def test_options_that_cannot_be_looked_up_take_the_long_way(calls) -> None:
    assert calls.again(["a"], X) is None


def test_a_kind_without_a_short_way_is_asked_about_once(calls) -> None:
    asked = []
    for _ in range(3):
        assert calls.again("a", X) is None
        assert calls.first("a", (X,), lambda: asked.append(1)) is None
    assert asked == [1]


def test_one_tensor_given_twice_takes_the_long_way(calls) -> None:
    assert first(calls, X, X) is None
    assert calls._known.get("a", []) == []


def test_ever_new_kinds_do_not_grow_without_end(calls) -> None:
    for length in range(1, 3 * repeats.KINDS_AT_MOST):
        first(calls, torch.ones(length))
    assert len(calls._known["a"]) == repeats.KINDS_AT_MOST
    assert calls.again("a", torch.ones(length)) is not None
    assert calls.again("a", torch.ones(1)) is None
    for option in range(3 * repeats.OPTIONS_AT_MOST):
        first(calls, X, options=option)
        assert len(calls._known) <= repeats.OPTIONS_AT_MOST
    assert calls.again(option, X) is not None
