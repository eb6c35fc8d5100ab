"""``add_everything``: ranges for models and optimizers that nobody handed over."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
from torch import nn
from written_ranges import WrittenRanges

from trainscope.record.hooks import Hooks


class SquareLoss(nn.Module):
    def forward(self, output: torch.Tensor) -> torch.Tensor:
        return output.square().mean()


def test_models_losses_and_optimizers_made_before_and_after(
    hooks: Hooks, ranges: WrittenRanges
) -> None:
    early = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    early_optimizer = torch.optim.SGD(early.parameters(), lr=0.1)
    hooks.add_everything()
    late = nn.Linear(2, 1)
    late_optimizer = torch.optim.AdamW(late.parameters())
    copied = copy.deepcopy(early_optimizer)
    criterion = SquareLoss()
    for model, optimizer in ((early, early_optimizer), (late, late_optimizer)):
        criterion(model(torch.ones(1, 2))).backward()
        optimizer.step()
    copied.step()
    turn = "forward() forward() backward() optimizer()"
    assert ranges.text == f"{turn} {turn} optimizer()"
    assert hooks.watches_optimizers


def test_evaluation_metrics_and_transforms(hooks: Hooks, ranges: WrittenRanges) -> None:
    hooks.add_everything()
    model, flatten = nn.Linear(2, 1), nn.Flatten()
    flatten(torch.ones(1, 2))  # a transform: no parameter, nothing to differentiate
    with torch.no_grad():
        SquareLoss()(model(torch.ones(1, 2)))
    model.eval()
    model(torch.ones(1, 2))
    assert ranges.text == "evaluation() evaluation()"


def test_nothing_counts_while_data_is_fetched(hooks: Hooks, ranges: WrittenRanges) -> None:
    hooks.add_everything()
    ranges.loop.find_phase = lambda: "data"
    nn.Linear(2, 1)(torch.ones(1, 2))
    assert ranges.text == ""


def test_the_same_optimizer_is_not_counted_twice(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks.add_model(model)
    hooks.add_optimizer(optimizer)
    hooks.add_everything()
    hooks.add_everything()
    optimizer.load_state_dict(optimizer.state_dict())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert ranges.text == "forward() backward() optimizer()"


@pytest.mark.parametrize("how", ["method", "object"])
def test_compiled_models(how: str, hooks: Hooks, ranges: WrittenRanges) -> None:
    hooks.add_everything()
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    if how == "method":
        model.compile(backend="aot_eager")
        compiled = model
    for _ in range(2):
        compiled(torch.ones(1, 2)).sum().backward()
    assert ranges.text == "forward() backward() forward() backward()"


def test_steps_are_announced_before_their_ranges(hooks: Hooks, ranges: WrittenRanges) -> None:
    events: list[str] = []
    ranges.on_event = lambda event: events.append(f"{event} after {len(ranges.text.split())}")
    hooks.add_everything()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    x = torch.ones(1, requires_grad=True)
    torch.autograd.grad(x * 2, x)
    with torch.no_grad():
        model(torch.ones(1, 2))
    assert events == [
        "forward after 0",
        "backward after 1",
        "optimizer after 2",
        "grad after 3",
        "evaluation after 4",
    ]


def test_models_that_only_compiled_code_calls_are_told(hooks: Hooks, ranges: WrittenRanges) -> None:
    hooks.add_everything()
    x = torch.ones(2, requires_grad=True)
    for ranges.step in range(3):
        x.sum().backward()
    (told,) = [each for each in hooks.not_seen() if each.startswith("forward")]
    assert told.startswith("forward of any module: 0 calls seen in 3 steps with a backward")


def test_a_model_is_known_by_itself_again_and_kept_by_nobody(
    hooks: Hooks, ranges: WrittenRanges
) -> None:
    hooks.add_everything()
    asked = []

    class Counted(nn.Linear):
        def parameters(self, recurse: bool = True):
            asked.append(id(self))
            return super().parameters(recurse)

    model = Counted(2, 1)
    for _ in range(3):
        model(torch.ones(1, 2))
    assert ranges.text == "forward() forward() forward()"
    assert len(asked) == 1, "whether it has a parameter is found once"
    gone = weakref.ref(model)
    del model
    assert gone() is None
    Counted(2, 1)(torch.ones(1, 2))
    assert len(asked) == 2, "whatever had its address before"
