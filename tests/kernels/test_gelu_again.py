"""gelu done again the short way, with a kernel that reads and writes where it is told to."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from trainscope_kernels import ArgumentError
from trainscope_kernels.gelu import gelu, run, triton_impl
from trainscope_kernels.gelu import op as gelu_op
from trainscope_kernels.repeats import Repeats

X = torch.arange(12.0).view(3, 4)


def memory(address: int, count: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


@pytest.fixture
def started(as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many programs each start asks for; gelu goes this way for impl="triton"."""
    programs: list[int] = []

    def compiled_start(kernel, device, arguments, constants):
        def start(number: int, addresses: tuple[int, ...], rest: tuple[Any, ...]) -> None:
            (at, to), (n, tanh, _) = addresses, rest
            form = "tanh" if tanh else "none"
            memory(to, n).copy_(torch.nn.functional.gelu(memory(at, n), approximate=form))
            programs.append(number)

        return start

    monkeypatch.setattr(triton_impl, "compiled_start", compiled_start)
    monkeypatch.setattr(gelu_op, "_gelu_calls", Repeats())
    monkeypatch.setattr(run, "implementation", lambda impl, device: triton_impl)
    return programs


@pytest.mark.parametrize("form", ["none", "tanh"])
@pytest.mark.parametrize("x", [torch.randn(50, 60), torch.randn(30, 100).t()], ids=["rows", "t"])
def test_gelu_again_is_gelu(started, form, x) -> None:
    for factor in (1, 2):
        y = gelu(x * factor, form, impl="triton")
        torch.testing.assert_close(y, torch.nn.functional.gelu(x * factor, approximate=form))
        assert y.stride() == x.stride()
    assert started == [3, 3]


def test_gelu_at_an_odd_address_takes_the_long_way(started, monkeypatch) -> None:
    numbers = torch.randn(65)
    gelu(numbers[:64], impl="triton")
    assert len(started) == 1
    asked = []
    monkeypatch.setattr(gelu_op, "_gelu", lambda *arguments: asked.append(arguments) or X)
    gelu(numbers[1:], impl="triton")
    assert len(started) == 1
    assert len(asked) == 1


def test_a_bad_argument_is_named_after_good_calls_too(started) -> None:
    gelu(X, impl="triton")
    for arguments, options in (
        ((X.int(),), {}),
        (([1.0],), {}),
        ((X, ["none"]), {}),
        ((X,), {"impl": "cudaa"}),
    ):
        with pytest.raises(ArgumentError):
            gelu(*arguments, **{"impl": "triton", **options})


def test_compiled_code_still_meets_the_op(started) -> None:
    gelu(X, impl="triton")
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    compiled = torch.compile(lambda x: gelu(x, impl="reference"), backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(X), torch.nn.functional.gelu(X))
    assert "trainscope_kernels.gelu.default" in seen


@pytest.mark.parametrize("x", [X[:, :0], X[:, ::2]], ids=["empty", "gaps"])
def test_what_is_worked_out_each_time_has_no_short_way(started, x) -> None:
    assert run.forward_again(X, "none", "triton") is not None
    assert run.forward_again(x, "none", "triton") is None


def test_the_reference_has_no_short_way(as_on_a_gpu) -> None:
    assert run.forward_again(X, "none", "reference") is None
