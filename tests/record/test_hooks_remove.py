"""After ``remove`` every class, module and instance is as it was; what must stay is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.optim.lr_scheduler import StepLR
from torch.utils.data.dataloader import _BaseDataLoaderIter
from written_ranges import WrittenRanges

from trainscope.record.hooks import Hooks


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class OwnCall(Net):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x)


PATCHABLE = (
    Net,
    OwnCall,
    nn.Module,
    nn.Sequential,
    nn.Linear,
    nn.ReLU,
    OptimizedModule,
    torch.optim.Optimizer,
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.autograd,
    torch.autograd.graph,
    torch.Tensor,
    torch,
    torch.optim,
    torch.utils.data.DataLoader,
    _BaseDataLoaderIter,
)


class Program:
    """Two models and three optimizers, one of them with a scheduler on its instance."""

    def __init__(self) -> None:
        self.net, self.own = Net(), OwnCall()
        parameters = list(self.net.parameters())
        self.optimizers = [
            torch.optim.SGD(parameters, lr=0.1),
            torch.optim.AdamW(parameters),
            torch.optim.SGD(self.own.parameters(), lr=0.1),
        ]
        self.scheduler = StepLR(self.optimizers[2], step_size=1)
        self.compiled = torch.compile(self.own, backend="eager")

    def snapshot(self) -> list[dict[str, Any]]:
        things = (*PATCHABLE, self.net, self.own, *self.net.modules(), *self.optimizers)
        return [dict(vars(thing)) for thing in things]

    def run(self) -> None:
        for model in (self.net, self.compiled):
            model(torch.ones(1, 2)).sum().backward()
        for optimizer in self.optimizers:
            optimizer.step()


def add_each(hooks: Hooks, program: Program) -> None:
    hooks.add_model(program.net, module_depth=2)
    hooks.add_model(program.compiled, module_depth=1)
    for optimizer in program.optimizers:
        hooks.add_optimizer(optimizer)


def add_everything(hooks: Hooks, program: Program) -> None:
    hooks.add_everything()


def same(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    return all(
        one.keys() == other.keys() and all(one[name] is other[name] for name in one)
        for one, other in zip(before, after, strict=True)
    )


def left_behind(hooks: Hooks) -> list[str]:
    return [sentence for sentence in hooks.not_seen() if "stays beneath" in sentence]


@pytest.mark.parametrize("add", [add_each, add_everything])
def test_everything_is_as_before(add: Callable[[Hooks, Program], None]) -> None:
    program = Program()
    program.run()
    before = program.snapshot()
    ranges = WrittenRanges()
    hooks = Hooks(ranges)
    add(hooks, program)
    assert not same(before, program.snapshot())
    program.run()
    assert ranges.counts == (2, 2, 3)
    hooks.remove()
    assert same(before, program.snapshot())
    program.run()
    hooks.remove()
    assert ranges.counts == (2, 2, 3)
    assert not left_behind(hooks)


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_two_at_once_leave_in_any_order(first_to_go: int) -> None:
    program = Program()
    program.run()  # the scheduler notes on its optimizer that a step was made
    before = program.snapshot()
    both = Hooks(WrittenRanges()), Hooks(WrittenRanges())
    for hooks in both:
        add_each(hooks, program)
        add_everything(hooks, program)
    both[first_to_go].remove()
    program.run()
    both[1 - first_to_go].remove()
    assert same(before, program.snapshot())
    assert not left_behind(both[0])
    assert not left_behind(both[1])


def test_what_others_wrapped_since_stays_and_passes_through() -> None:
    model, ranges = OwnCall(), WrittenRanges()
    original = OwnCall.__call__
    hooks = Hooks(ranges)
    hooks.add_model(model)
    beneath, theirs = OwnCall.__call__, []

    def of_another_tool(self: OwnCall, x: torch.Tensor) -> torch.Tensor:
        theirs.append(1)
        return beneath(self, x)

    try:
        OwnCall.__call__ = of_another_tool
        model(torch.ones(1, 2))
        hooks.remove()
        model(torch.ones(1, 2))
        assert (ranges.text, theirs) == ("forward()", [1, 1])
        assert vars(OwnCall)["__call__"] is of_another_tool
        assert hooks.not_seen() == (
            f"{__name__}.OwnCall.__call__ was replaced by other code after trainscope wrapped it: "
            "ours stays beneath it and passes straight through",
        )
        again = Hooks(second := WrittenRanges())
        again.add_model(model)
        model(torch.ones(1, 2))
        again.remove()
        assert second.text == "forward()", "ours beneath must not open a second range"
        assert vars(OwnCall)["__call__"] is of_another_tool
    finally:
        OwnCall.__call__ = original


def test_a_scheduler_made_between_still_steps_afterwards() -> None:
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    for _ in range(2):  # as in a notebook: wrap, scheduler, close, and all again
        hooks = Hooks(ranges := WrittenRanges())
        hooks.add_optimizer(optimizer)
        scheduler = StepLR(optimizer, step_size=1, gamma=1.0)
        optimizer.step()
        scheduler.step()
        hooks.remove()
        optimizer.step()
        assert ranges.counts == (0, 0, 1)
        assert hooks.not_seen() == ()
    assert parameter.item() == 1.0 - 4 * 0.5
    assert "step" not in vars(torch.optim.SGD) or vars(torch.optim.SGD)["step"].__module__ == (
        "torch.optim.sgd"
    )
