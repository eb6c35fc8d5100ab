"""torch.compile(fullgraph=True) still compiles under a dry run; results keep their place."""

from __future__ import annotations

from types import FrameType

import pytest
import torch
from torch import Tensor, nn

from trainscope.sync.blame import blame
from trainscope.sync.dry import DryRun


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_frame_is_compiled_and_not_run_eagerly(backend: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    seen: list[str] = []

    def observe(kind: str, frame: object, *, internal: bool = False) -> None:
        seen.append(kind)

    net = nn.Linear(3, 3)

    def forward(x: Tensor) -> Tensor:
        y = torch.zeros(3, device=x.device) + net(x.to(x.device, torch.float32))
        return (y + torch.ones_like(y) + x.new_ones(3))[:, 1:].sum() + torch.tensor(3.0)

    dry_run = DryRun(observe)
    dry_run.start()
    try:
        net.to("cuda")
        seen.clear()
        compiled = torch.compile(forward, fullgraph=True, backend=backend)
        for _ in range(3):
            loss = compiled(torch.randn(2, 3, device="cuda"))
            loss.backward()
        assert seen == []
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
        assert "CompiledFunction" in type(loss.grad_fn).__name__
        loss.item()
        assert seen == ["item"]
        assert net.weight.grad is not None
        net.weight.grad.sum().item()
        assert seen == ["item", "item"]
    finally:
        dry_run.stop()
    assert dry_run.fault is None
    assert any("compiled" in line for line in dry_run.cannot_see)


def test_every_replaced_tensor_method_passes_fullgraph() -> None:
    def everything(x: Tensor) -> Tensor:
        y = x.to("cpu").to(torch.float64).cpu().to(x)
        z = x.new_zeros(2) + x.new_full((2,), 1.0) + x.new_tensor([1.0, 2.0])
        w = torch.arange(2, device=x.device) + torch.empty_like(x).fill_(1.0)[0, :2]
        w = w + torch.nn.functional.one_hot(torch.tensor([0, 1]), 2).float().sum(0)
        return y[0, [0, 1]] + z + w + torch.as_tensor(2.0) + torch.randn(2)

    def observe(kind: str, frame: object, *, internal: bool = False) -> None:
        raise AssertionError(kind)

    torch._dynamo.reset()
    dry_run = DryRun(observe)
    dry_run.start()
    try:
        compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
        assert compiled(torch.ones(2, 3)).shape == (2,)
        scripted = torch.jit.script(_scripted)
        assert torch.equal(scripted(torch.ones(2)), torch.full((2,), 2.0))
    finally:
        dry_run.stop()
    assert dry_run.fault is None
    torch._dynamo.reset()
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(2, 3)).shape == (2,)
    assert torch.jit.script(_scripted_again)(torch.ones(2)).tolist() == [4.0, 4.0]


def _scripted_again(x: Tensor) -> Tensor:
    return torch.full([2], 3.0) + x


def _scripted(x: Tensor) -> Tensor:
    return torch.zeros(2) + x + torch.ones_like(x)


def test_a_compiled_optimizer_step_still_compiles() -> None:
    torch._dynamo.reset()
    seen: list[str] = []

    def observe(kind: str, frame: object, *, internal: bool = False) -> None:
        seen.append(kind)

    dry_run = DryRun(observe)
    dry_run.start()
    try:
        net = nn.Linear(3, 3, device="cuda")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        before = net.weight.detach().clone()
        net(torch.ones(1, 3, device="cuda")).sum().backward()
        # torch itself breaks the graph at the step's grad mode, so not fullgraph
        torch._dynamo.utils.counters.clear()
        torch.compile(optimizer.step, backend="aot_eager")()
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
        assert seen == []
        assert torch.equal(net.weight, before - 0.1)
        assert seen == ["bool"]
    finally:
        dry_run.stop()
    assert dry_run.fault is None


def test_a_read_between_two_graphs_is_one_item() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    seen: list[tuple[str, int]] = []

    def observe(kind: str, frame: FrameType, *, internal: bool = False) -> None:
        user = blame(frame).user
        assert user is not None
        seen.append((kind, user.f_lineno))

    def broken(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum().item() > 0:
            y = y + 1
        return y.sin()

    line = broken.__code__.co_firstlineno + 2
    dry_run = DryRun(observe)
    dry_run.start()
    try:
        # without a gradient the compiled part's result carries no mark, so it needs one here
        x = torch.ones(3, device="cuda", requires_grad=True)
        compiled = torch.compile(broken, backend="aot_eager")
        for _ in range(3):
            compiled(x)
    finally:
        dry_run.stop()
    assert dry_run.fault is None
    assert seen == [("item", line)] * 3
