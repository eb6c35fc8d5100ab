"""What the list says was replaced is what a run reaches, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from swapped_nets import ops_of
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as attention

from trainscope_kernels import swap

X = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(0))


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


def attend(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x)


class OwnModules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.softmax = nn.Softmax(dim=-1)
        self.gelu = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.softmax(self.gelu(x))


class OwnFunction(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gelu(x)


class OwnMethod(nn.Module):
    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() / x.exp().sum(-1, keepdim=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.softmax(each) for each in x]
        return torch.stack(parts)


class OtherFunction(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.softmax(x, -1)


class Samples(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def generate(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self(x), -1)


class Hides(Samples):
    def softer(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x, -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.softer(x)


class HidesMore(Hides):
    def softer(self, x: torch.Tensor) -> torch.Tensor:
        return x


class CallsBase(Hides):
    def softer(self, x: torch.Tensor) -> torch.Tensor:
        return super().softer(x)


class Decorated(nn.Module):
    @staticmethod
    def attend(q: torch.Tensor) -> torch.Tensor:
        return attention(q, q, q.softmax(-1))

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.attend(x))


class Stores(nn.Module):
    def __init__(self, act: Callable[..., Any] = F.gelu) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x)


class ImportsItself(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import torch.nn.functional as functional
        from torch.nn.functional import gelu as smooth  # noqa: F401

        return functional.scaled_dot_product_attention(x, x, x)


class InLambda(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [lambda: (x @ x.mT).softmax(-1), lambda: torch.nn.functional.gelu(x)]
        return parts[0]() @ parts[1]()


class Helper(nn.Module):
    def compute(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("its owner calls compute")


class CallsAMethod(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.helper = Helper()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.helper.compute(x)


OPS = {
    "F.gelu": "gelu",
    "F.softmax": "softmax_forward",
    "F.scaled_dot_product_attention": "flash_attention",
}


def listed(model: nn.Module) -> set[str]:
    swaps = swap(model, impl="reference")
    return {OPS[each.was] for each in swaps if each.where.startswith("calls in")}


@pytest.mark.parametrize(
    "model",
    [
        *(OwnFunction(), OwnMethod(), OtherFunction(), Samples(), Hides(), HidesMore()),
        *(CallsBase(), Decorated(), Stores(), Stores(F.relu), InLambda(), CallsAMethod()),
        Stores(functools.partial(F.gelu, approximate="tanh")),
        nn.Sequential(Stores(F.relu), Stores(F.gelu)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_list_names_the_calls_that_a_run_replaces(model: nn.Module) -> None:
    expected = model(X)
    assert listed(model) == set(ops_of(model, X))
    torch.testing.assert_close(model(X), expected)


def test_a_function_that_imports_torch_itself() -> None:
    assert listed(ImportsItself()) == {"flash_attention", "gelu"}


def test_modules_with_the_name_of_a_function_are_no_calls() -> None:
    model = OwnModules()
    swaps = swap(model, impl="reference")
    assert [each.where for each in swaps] == ["softmax", "gelu"]
    assert ops_of(model, X) == ["gelu", "softmax_forward"]


def test_what_other_functions_call_is_replaced_and_the_printed_list_says_so() -> None:
    class CallsAFunction(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return attend(x)

    model = CallsAFunction()
    swaps = swap(model, impl="reference")
    assert ops_of(model, X) == ["flash_attention"]
    assert list(swaps) == []
    assert str(swaps) == (
        "calls of F.gelu, F.softmax and F.scaled_dot_product_attention that other functions make "
        "while the model runs: replaced alike, and not listed"
    )
    assert str(swap(nn.Linear(2, 2))) == "nothing to swap"


@pytest.mark.parametrize(("impl", "where"), [("auto", " on a GPU"), ("reference", "")])
def test_where_a_call_is_replaced(impl: str, where: str) -> None:
    assert [each.now for each in swap(Decorated(), impl=impl)] == [
        f"trainscope_kernels.gelu{where}",
        f"trainscope_kernels.softmax{where}",
        f"trainscope_kernels.flash_attention{where}, but for dropout_p > 0 and a mask that wants a "
        "gradient",
    ]


class HasEverything:
    def __getattr__(self, name: str) -> HasEverything:
        return self

    def __call__(self, x: torch.Tensor) -> float:
        return 2.0


def test_an_object_with_every_attribute_is_passed_over() -> None:
    class Model(nn.Module):
        helper = HasEverything()

        @functools.lru_cache  # noqa: B019
        def cached(self) -> torch.Tensor:
            return F.softmax(X, -1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(x) * self.helper(x) + self.cached()

    model = Model()
    assert listed(model) == set(ops_of(model, X))


class Attends(nn.MultiheadAttention):
    """Keeps torch's weights, not its forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return F.scaled_dot_product_attention(x, x, x)


class AttendsAsTorch(nn.MultiheadAttention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, x, x)[0]


@pytest.mark.parametrize(
    ("kind", "left"),
    [(Attends, []), (AttendsAsTorch, ["AttendsAsTorch"]), (nn.Identity, [])]
    + [(nn.MultiheadAttention, ["nn.MultiheadAttention"])],
)
def test_attention_is_called_left_where_torchs_forward_runs(
    kind: Callable[..., nn.Module], left: list[str]
) -> None:
    model = nn.Sequential(kind(8, 2))
    swaps = swap(model, impl="reference")
    assert [each.was for each in swaps.left] == left
    assert swaps.calls_elsewhere == (kind in (Attends, AttendsAsTorch))
    if kind is not nn.MultiheadAttention:
        x = X if kind is Attends else X[0]
        assert ops_of(model, x) == (["flash_attention"] if kind is Attends else [])
