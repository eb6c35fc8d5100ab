"""Every outermost backward is one range, however it is called; only training ones are counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.autograd import backward as imported_before_backward
from torch.autograd import grad as imported_before_grad
from written_ranges import WrittenRanges

from trainscope.record.hooks import Hooks, watchers
from trainscope.record.hooks.engine import ENGINE


@pytest.fixture
def ranges() -> Iterator[WrittenRanges]:
    ranges = WrittenRanges()
    hooks = Hooks(ranges)
    hooks.add_model(nn.Linear(1, 1))
    yield ranges
    hooks.remove()


def leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def test_every_way_to_call_it(ranges: WrittenRanges) -> None:
    x = leaf()
    (x * 2).sum().backward()
    torch.autograd.backward((x * 2).sum())
    imported_before_backward((x * 2).sum())
    assert ranges.counts == (0, 3, 0)
    imported_before_grad((x * 2).sum(), x)
    torch.autograd.grad((x * 2).sum(), x)
    assert ranges.counts == (0, 3, 0), "grad() trains nothing by itself"
    assert ranges.text == " ".join(["backward()"] * 5)
    assert torch.equal(x.grad, torch.full((3,), 6.0))


def test_one_that_is_captured_into_a_cuda_graph_is_told_apart(
    ranges: WrittenRanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    ranges.on_event = events.append
    x = leaf()
    (x * 2).sum().backward()
    monkeypatch.setattr(watchers, "stream_is_capturing", lambda: True)
    (x * 2).sum().backward()
    torch.autograd.grad((x * 2).sum(), x)
    assert events == ["backward", "captured backward", "grad"]


@pytest.mark.gpu
def test_one_that_a_real_graph_captures(ranges: WrittenRanges) -> None:
    events: list[str] = []
    ranges.on_event = events.append
    x = torch.ones(3, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (x * 2).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    x.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (x * 2).sum().backward()
    graph.replay()
    assert events == ["backward", "captured backward"]
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3


def test_double_backward(ranges: WrittenRanges) -> None:
    x = leaf()
    (penalty,) = imported_before_grad((x**3).sum(), x, create_graph=True)
    penalty.sum().backward()
    assert ranges.text == "backward() backward()"
    assert ranges.counts == (0, 1, 0)
    assert torch.equal(x.grad, torch.full((3,), 6.0))


class BackwardInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            (inner * 2).sum().backward()
        return inner.grad * gradient


def test_a_backward_inside_another_is_part_of_it(ranges: WrittenRanges) -> None:
    @torch.enable_grad()
    def double(gradient: torch.Tensor) -> torch.Tensor:
        other = leaf()
        return gradient * torch.autograd.grad((other * 2).sum(), other)[0]

    x = leaf()
    x.register_hook(double)
    BackwardInside.apply(x).sum().backward()
    assert ranges.text == "backward()"
    assert ranges.counts == (0, 1, 0)
    assert torch.equal(x.grad, torch.full((3,), 4.0))


def test_another_thread_opens_nothing(ranges: WrittenRanges) -> None:
    thread = threading.Thread(target=lambda: leaf().sum().backward())
    thread.start()
    thread.join()
    assert (ranges.text, ranges.counts) == ("", (0, 0, 0))


def test_an_exception_in_a_hook_passes(ranges: WrittenRanges) -> None:
    x = leaf()

    def fail(_: torch.Tensor) -> None:
        raise ZeroDivisionError("from the hook")

    x.register_hook(fail)
    with pytest.raises(ZeroDivisionError, match="from the hook"):
        (x * 2).sum().backward()
    leaf().sum().backward()
    assert ranges.text == "backward() backward()"


def test_a_model_called_in_a_tensor_hook_is_no_forward(ranges: WrittenRanges) -> None:
    model, x, watched = nn.Linear(3, 3), leaf(), WrittenRanges()
    hooks = Hooks(watched)
    hooks.add_model(model)
    x.register_hook(lambda g: model(g).detach())
    (x * 2).sum().backward()
    hooks.remove()
    assert watched.text == "backward()"


def test_torch_keeps_one_function_under_both_names(ranges: WrittenRanges) -> None:
    assert torch.autograd._engine_run_backward is torch.autograd.graph._engine_run_backward


def test_the_engine_is_put_back_when_the_last_one_leaves() -> None:
    before = torch.autograd._engine_run_backward
    one, two = Hooks(WrittenRanges()), Hooks(WrittenRanges())
    one.add_model(nn.Linear(1, 1))
    two.add_model(nn.Linear(1, 1))
    one.remove()
    assert torch.autograd._engine_run_backward is not before
    two.remove()
    assert torch.autograd._engine_run_backward is before
    assert torch.autograd.graph._engine_run_backward is before
    assert ENGINE.watchers == ()


def test_a_torch_without_that_entry_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd.graph, "_engine_run_backward")
    hooks = Hooks(WrittenRanges())
    hooks.add_model(nn.Linear(1, 1))
    assert hooks.not_seen() == (f"backward: torch {torch.__version__} has no known entry to it",)
    hooks.remove()


def test_the_next_backward_is_a_lull_once() -> None:
    hooks, told = Hooks(WrittenRanges()), []
    hooks.add_model(nn.Linear(1, 1))
    hooks.lulls.at_lull = lambda: told.append(torch._C._current_graph_task_id())
    (leaf() * 2).sum().backward()
    (leaf() * 2).sum().backward()
    hooks.remove()
    assert told == [-1], "as the first one begins, and no more"
