"""``swap``: what it reaches, what it leaves, and that the model stays what it was."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from swapped_nets import ops_of
from torch import nn
from torch.nn import functional as F

from trainscope_kernels import ArgumentError, swap
from trainscope_kernels.modules import GELU, Softmax


class Net(nn.Module):
    """Every way in which a model asks for what can be swapped."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.project = nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU(approximate="tanh"), nn.Softmax(dim=-1))
        self.erf = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.project(x).view(2, 2, 5, 4)
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True, dropout_p=drop)
        x = self.erf(self.mlp(mixed.reshape(2, 5, 8)))
        return F.softmax(F.gelu(x), dim=1) + torch.softmax(x, 0) + x.softmax(-1)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def test_all_of_it_runs_through_these_kernels_and_gives_the_same(x: torch.Tensor) -> None:
    torch.manual_seed(1)
    model = Net()
    expected = model(x)
    expected.sum().backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    swap(model, impl="reference")
    got = model(x)
    torch.testing.assert_close(got, expected)
    got.sum().backward()
    for grad, parameter in zip(grads, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, grad)
    names = ops_of(model, x)
    assert names.count("flash_attention") == 1
    assert sum(name.startswith("gelu") for name in names) == 3
    assert sum(name.startswith("softmax") for name in names) == 4


def test_the_list_of_what_became_of_each_place() -> None:
    swaps = swap(Net(), impl="reference")
    assert [(each.where, each.was) for each in swaps] == [
        ("mlp.1", "nn.GELU(approximate='tanh')"),
        ("mlp.2", "nn.Softmax(dim=-1)"),
        ("erf", "nn.GELU(approximate='none')"),
        ("calls in Net", "F.gelu"),
        ("calls in Net", "F.softmax"),
        ("calls in Net", "F.scaled_dot_product_attention"),
    ]
    assert swaps.left == []
    assert str(swaps).splitlines()[0] == (
        "mlp.1: nn.GELU(approximate='tanh') -> "
        "trainscope_kernels.GELU(approximate='tanh', impl='reference')"
    )


def test_on_a_cpu_calls_are_left_to_torch_unless_an_impl_is_named(x: torch.Tensor) -> None:
    model = Net()
    swap(model)
    assert "flash_attention" not in ops_of(model, x)


def test_dropout_in_training_is_left_alone(x: torch.Tensor) -> None:
    model = Net(dropout=0.5)
    swap(model, impl="reference")
    torch.manual_seed(3)
    dropped = model(x)
    plain = Net(dropout=0.5)
    plain.load_state_dict(model.state_dict())
    torch.manual_seed(3)
    torch.testing.assert_close(dropped, plain(x))
    assert "flash_attention" not in ops_of(model, x)
    assert "flash_attention" in ops_of(model.eval(), x)


class Odd(nn.GELU):
    """A user's own."""


def test_what_may_be_something_else_is_left_and_said() -> None:
    hooked = nn.GELU()
    hooked.register_forward_hook(lambda *_: None)
    model = nn.Sequential(Odd(), nn.Softmax(), hooked, nn.MultiheadAttention(8, 2))
    swaps = swap(model, impl="reference")
    assert [(each.where, each.why_not) for each in swaps.left] == [
        ("0", "Odd is a class of its own, which may do something else"),
        ("1", "its dim is None, which torch guesses from the input"),
        ("2", "it has hooks, which would be lost"),
        ("3", "torch calls its attention where no call can be replaced"),
    ]
    assert swaps.changed == []
    assert type(model[0]) is Odd
    assert model[2] is hooked
    assert "left, it has hooks" in str(swaps)


def test_one_module_in_two_places_stays_one() -> None:
    shared = nn.GELU()
    model = nn.Sequential(shared, nn.Linear(2, 2), shared)
    swap(model, impl="reference")
    assert isinstance(model[0], GELU)
    assert model[0] is model[2]


def test_the_mode_of_the_module_is_kept() -> None:
    model = nn.Sequential(nn.Softmax(dim=1)).eval()
    swap(model)
    assert isinstance(model[0], Softmax)
    assert not model[0].training


def test_the_model_stays_what_it_was(x: torch.Tensor) -> None:
    model = Net()
    keys = list(model.state_dict())
    swap(model, impl="reference")
    swap(model, impl="reference")  # once more changes nothing
    assert type(model) is Net
    assert list(model.state_dict()) == keys
    expected = model(x)
    clone = copy.deepcopy(model)
    with torch.no_grad():
        clone.project.weight.zero_()
    assert not torch.equal(clone(x), expected)
    assert torch.equal(model(x), expected)
    assert "flash_attention" in ops_of(clone, x)
    loaded = pickle.loads(pickle.dumps(model))
    assert torch.equal(loaded(x), expected)
    assert ops_of(model, x).count("flash_attention") == 1


def test_swapping_again_changes_the_impl_everywhere(x: torch.Tensor) -> None:
    model = Net()
    swap(model, impl="reference")
    again = swap(model)
    assert ops_of(model, x) == []
    assert [each.now for each in again[:3]] == [
        "trainscope_kernels.GELU(approximate='tanh', impl='auto')",
        "trainscope_kernels.Softmax(dim=-1, impl='auto')",
        "trainscope_kernels.GELU(approximate='none', impl='auto')",
    ]
    swap(model, impl="reference")
    assert len(ops_of(model, x)) == 8
    assert {each.where for each in swap(model, impl="reference")} == {"calls in Net"}


@pytest.mark.parametrize("when", ["before", "after", "in place"])
def test_it_compiles_in_one_graph(x: torch.Tensor, when: str) -> None:
    model = Net()
    expected = model(x)
    if when == "before":
        run = torch.compile(model, fullgraph=True, backend="aot_eager")
        swap(model, impl="reference")
    else:
        swap(model, impl="reference")
        run = model
        if when == "after":
            run = torch.compile(model, fullgraph=True, backend="aot_eager")
        else:
            model.compile(fullgraph=True, backend="aot_eager")
    got = run(x)
    torch.testing.assert_close(got, expected)
    got.sum().backward()
    assert model.project.weight.grad is not None


def test_exceptions_leave_no_mode_behind(x: torch.Tensor) -> None:
    model = Net()
    swap(model, impl="reference")
    with pytest.raises(RuntimeError):
        model(x[:1])
    assert "gelu" not in ops_of(nn.GELU(), x)


def test_calls_with_arguments_that_are_not_taken_go_to_torch() -> None:
    class Calls(nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            q = x.view(2, 5, 8)  # three dimensions
            double = x.double()
            return [
                F.scaled_dot_product_attention(q, q, q),
                F.softmax(double, dim=0),
                F.softmax(x, dim=0, dtype=torch.float64),
                F.gelu(double),
                torch.softmax(x, 0, torch.float32),
            ]

    model, x = Calls(), torch.randn(2, 5, 8)
    expected = model(x)
    swap(model, impl="reference")
    for one, other in zip(model(x), expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)
    assert ops_of(model, x) == ["softmax_forward"]


@pytest.mark.parametrize("bad", [torch.nn.functional.gelu, "model", None])
def test_what_is_no_model(bad: object) -> None:
    with pytest.raises(ArgumentError, match=r"model must be a torch.nn.Module, got"):
        swap(bad)  # type: ignore[arg-type]


def test_an_unknown_impl() -> None:
    with pytest.raises(ArgumentError, match="impl='gluon'"):
        swap(nn.GELU(), impl="gluon")


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (q, k, v[:1]),
        lambda q, k, v: (q, k[:1], v[:1]),
        lambda q, k, v: (q, k[:, :1], v[:, :1]),
        lambda q, k, v: (q[..., :0], k[..., :0], v),
        lambda q, k, v: (q, k, v[..., :0]),
    ],
)
def test_shapes_that_only_torch_takes_go_to_it(change: Any) -> None:
    class Attends(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v)

    q, k, v = change(*torch.randn(3, 2, 4, 5, 8))
    model = Attends()
    expected = model(q, k, v)
    swap(model, impl="reference")
    torch.testing.assert_close(model(q, k, v), expected)
    assert ops_of(model, q, k, v) == []


def test_what_torch_refuses_a_swapped_model_refuses() -> None:
    class Attends(nn.Module):
        def forward(self, q: torch.Tensor, heads: int, dropout_p: float) -> torch.Tensor:
            k = q[:, :heads]
            return F.scaled_dot_product_attention(q, k, k, dropout_p=dropout_p, enable_gqa=True)

    for heads, dropout_p in ((3, 0.0), (2, -0.5)):
        model, q = Attends(), torch.randn(2, 4, 5, 8)
        with pytest.raises(RuntimeError) as torchs:
            model(q, heads, dropout_p)
        swap(model, impl="reference")
        with pytest.raises(RuntimeError) as ours:
            model(q, heads, dropout_p)
        assert str(ours.value) == str(torchs.value)
