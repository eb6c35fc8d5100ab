"""torch.compile(fullgraph=True) still compiles under a dry run; results keep their place."""

from __future__ import annotations

from types import FrameType

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _python_dispatch

from trainscope.sync.blame import blame
from trainscope.sync.dry import DryRun, compiled


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
        fast = torch.compile(forward, fullgraph=True, backend=backend)
        for _ in range(3):
            loss = fast(torch.randn(2, 3, device="cuda"))
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


@pytest.mark.parametrize(
    ("module", "waits"), [("torch._inductor.fx_passes.fuse_attention", 0), ("torch.optim.adam", 1)]
)
def test_what_the_compiler_makes_for_itself_is_no_wait_of_the_program(
    module: str, waits: int
) -> None:
    seen: list[str] = []

    def observe(kind: str, frame: object, *, internal: bool = False) -> None:
        seen.append(kind)

    dry_run = DryRun(observe)
    dry_run.start()
    try:
        exec("torch.tensor(1.0, device='cuda')", {"__name__": module, "torch": torch})
    finally:
        dry_run.stop()
    assert seen == ["h2d-scalar"] * waits


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
        fast = torch.compile(everything, fullgraph=True, backend="aot_eager")
        assert fast(torch.ones(2, 3)).shape == (2,)
        scripted = torch.jit.script(_scripted)
        assert torch.equal(scripted(torch.ones(2)), torch.full((2,), 2.0))
    finally:
        dry_run.stop()
    assert dry_run.fault is None
    torch._dynamo.reset()
    fast = torch.compile(everything, fullgraph=True, backend="aot_eager")
    assert fast(torch.ones(2, 3)).shape == (2,)
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
        fast = torch.compile(broken, backend="aot_eager")
        for _ in range(3):
            fast(x)
    finally:
        dry_run.stop()
    assert dry_run.fault is None
    assert seen == [("item", line)] * 3


def test_under_guards_that_see_modes_the_mode_is_off_in_compiled_code_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As torch 2.9 needs it, tried with whichever torch there is."""
    needed = compiled.guards_see_modes()
    monkeypatch.setattr(compiled, "guards_see_modes", lambda: True)
    torch._dynamo.reset()
    seen: list[str] = []

    def observe(kind: str, frame: object, *, internal: bool = False) -> None:
        seen.append(kind)

    def modes() -> int:
        return len(_python_dispatch._get_current_dispatch_mode_stack())

    inside: list[int] = []

    @torch.compiler.disable
    def beside() -> None:
        inside.append(modes())

    def forward(x: Tensor) -> Tensor:
        y = x + 1
        beside()
        return y.reshape(3) if y.numel() == 3 else y.reshape(7)

    dry_run = DryRun(observe)
    dry_run.start()
    try:
        called = torch.compile(forward, backend="eager")
        on_device = torch.ones(3, device="cuda")
        for _ in range(2):
            called(on_device)
        assert modes() == 1
        assert inside == [1, 1]
        if needed:  # later torch puts the dispatcher back as it was, and the mode with it
            with pytest.raises(RuntimeError, match="shape"):
                called(torch.ones(2, device="cuda"))
            assert modes() == 1
        (on_device + 1).sum().item()
        assert seen == ["item"]
    finally:
        dry_run.stop()
    assert modes() == 0
    assert called(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert modes() == 0
    assert dry_run.fault is None
    assert any("torch 2.9" in line for line in dry_run.cannot_see)


@pytest.mark.parametrize(
    ("module", "waits"),
    [
        ("train", ["h2d-pageable"]),
        ("torch._inductor.pattern_matcher", []),
        ("torch._subclasses.fake_impls", []),
    ],
)
def test_what_the_compiler_moves_for_itself_is_no_wait(module: str, waits: list[str]) -> None:
    seen: list[str] = []
    dry_run = DryRun(lambda kind, frame, *, internal=False: seen.append(kind))
    dry_run.start()
    try:
        exec("x.to('cuda')", {"__name__": module, "x": torch.ones(3)})
    finally:
        dry_run.stop()
    assert seen == waits
