"""The short way to an op's code is taken only where nothing stands in between."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode

from trainscope_kernels.gelu import gelu


def expected(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.linspace(-3, 3, 12)


def test_a_lazy_negation_is_carried_out(x: torch.Tensor) -> None:
    negative = torch.complex(x, x).conj().imag
    assert negative.is_neg()
    torch.testing.assert_close(gelu(negative, impl="reference"), expected(-x))
    leaf = negative.detach().requires_grad_()
    torch.testing.assert_close(gelu(leaf, impl="reference"), expected(-x))


def test_zeros_without_memory_are_zeros(x: torch.Tensor) -> None:
    zeros = torch._efficientzerotensor((12,))
    assert torch.equal(gelu(zeros, impl="reference"), torch.zeros(12))
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(
        gelu(leaf, impl="reference"), leaf, torch._efficientzerotensor(12)
    )
    assert torch.equal(grad, torch.zeros(12))


def test_a_meta_tensor_has_no_values_to_compute() -> None:
    out = gelu(torch.empty(3, 5, device="meta"), impl="reference")
    assert (out.shape, out.device.type) == ((3, 5), "meta")


def test_a_dispatch_mode_sees_the_op(x: torch.Tensor) -> None:
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    with Mode():
        gelu(x, impl="reference")
        gelu(x.clone().requires_grad_(), impl="reference")
    assert [name for name in seen if "gelu" in name] == ["trainscope_kernels::gelu"] * 2


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_transform_sees_the_op(x: torch.Tensor) -> None:
    rows = x.view(3, 4)
    got = vmap(lambda row: gelu(row, impl="reference"))(rows)
    torch.testing.assert_close(got, expected(rows))


def test_a_subclass_sees_the_op(x: torch.Tensor) -> None:
    seen = []

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(func.name())
            return func(*[a.inner if isinstance(a, Wrapped) else a for a in args])

    torch.testing.assert_close(gelu(Wrapped(x), impl="reference"), expected(x))
    assert seen == ["trainscope_kernels::gelu"]


def test_a_profiler_sees_the_op(x: torch.Tensor) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        gelu(x, impl="reference")
    names = [event.name for event in profile.events() or ()]
    assert "trainscope_kernels::gelu" in names


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_function_mode_and_a_tracer_see_the_op(x: torch.Tensor) -> None:
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        gelu(x, impl="reference")
    assert any("trainscope_kernels" in name for name in seen)
    traced = torch.jit.trace(lambda x: gelu(x, impl="reference"), (x,))
    assert "trainscope_kernels::gelu" in str(traced.graph)
    torch.testing.assert_close(traced(-x), expected(-x))


def test_plain_code_goes_straight_to_what_runs(
    x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = torch.ops.trainscope_kernels.gelu.default
    monkeypatch.setattr(
        type(op), "__call__", lambda *_: pytest.fail("the dispatcher was asked"), raising=True
    )
    leaf = x.clone().requires_grad_()
    gelu(x, impl="reference")
    gelu(leaf, impl="reference").sum().backward()
    assert leaf.grad is not None


@pytest.mark.parametrize("wanted", [False, True])
def test_a_forward_mode_gradient_is_refused_and_not_lost(x: torch.Tensor, wanted: bool) -> None:
    tangent = torch.ones_like(x)
    with forward_ad.dual_level():
        assert gelu(x, impl="reference").shape == x.shape  # without a tangent all is well
        dual = forward_ad.make_dual(x.clone().requires_grad_(wanted), tangent)
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            gelu(dual, impl="reference")
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        torch.func.jvp(lambda each: gelu(each, impl="reference"), (x,), (tangent,))
