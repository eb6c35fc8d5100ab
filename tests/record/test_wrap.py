"""``scope.wrap`` end to end: the phases of a step with no other edit, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import trainscope as ts


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.act = nn.ReLU(inplace=True)
        self.last = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.act(self.first(x)))


def rows(scope: ts.Scope, step: int) -> list[tuple[str, int]]:
    """Names and depths of one step's ranges, in the order in which they began."""
    trace = ts.load(scope.run_dir)
    ranges = trace.ranges
    of_step = [
        (int(start), int(depth), trace.names[name])
        for start, depth, name, its in zip(
            ranges.start_ns, ranges.depth, ranges.name_id, ranges.step, strict=True
        )
        if its == step
    ]
    return [(name, depth) for _, depth, name in sorted(of_step)]


def test_one_line_gives_every_phase(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ts.Scope(tmp_path / "run") as scope:
        assert scope.wrap(model, optimizer, module_depth=1) is model
        for batch in scope.steps(torch.ones(3, 2, 4)):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            with torch.no_grad():
                model(batch)
    inner = [("first", 2), ("act", 2), ("last", 2)]
    assert rows(scope, 1) == [
        ("step", 0),
        ("data", 1),
        ("forward", 1),
        *inner,
        ("backward", 1),
        ("optimizer", 1),
        ("evaluation", 1),
        *inner,
    ]
    report = scope.report()
    assert report.steps.optimizer_steps == 3
    assert report.not_seen == []


def test_a_gan_with_two_models_and_two_optimizers(tmp_path: Path) -> None:
    generator, critic = nn.Linear(2, 4), Net()
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    with ts.Scope(tmp_path / "run") as scope:
        scope.wrap(generator, of_generator)
        scope.wrap(critic, of_critic)
        for noise in scope.steps(torch.ones(2, 3, 2)):
            fake = generator(noise)
            critic(fake.detach()).sum().backward()
            of_critic.step()
            critic(fake).sum().backward()
            of_generator.step()
    assert [name for name, _ in rows(scope, 1)] == [
        "step",
        "data",
        "forward",
        "forward",
        "backward",
        "optimizer",
        "forward",
        "backward",
        "optimizer",
    ]


def test_an_exception_in_the_model_closes_the_ranges(tmp_path: Path) -> None:
    model = Net()
    with ts.Scope(tmp_path / "run") as scope:
        scope.wrap(model, module_depth=1)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            for _ in scope.steps([0]):
                model(torch.ones(1, 5))
    assert rows(scope, 0) == [("step", 0), ("data", 1), ("forward", 1), ("first", 2)]


def test_close_leaves_nothing(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    things = (Net, nn.Linear, nn.Module, torch.optim.AdamW, torch.optim.Adam, torch.autograd)
    before = [dict(vars(each)) for each in (*things, model, optimizer)]
    with ts.Scope(tmp_path / "run") as scope:
        scope.wrap(model, optimizer, module_depth=1)
        for batch in scope.steps(torch.ones(2, 1, 4)):
            model(batch).sum().backward()
            optimizer.step()
    after = [dict(vars(each)) for each in (*things, model, optimizer)]
    for one, other in zip(before, after, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name] is other[name] for name in one)


def test_what_a_compiled_step_hides_is_in_the_report(tmp_path: Path) -> None:
    model = Net()
    loss_of = torch.compile(lambda x: model(x).sum(), backend="eager")
    with ts.Scope(tmp_path / "run") as scope:
        scope.wrap(model)
        for batch in scope.steps(torch.ones(2, 1, 4)):
            loss_of(batch).backward()
    (told,) = scope.report().not_seen
    assert told.startswith("forward of Net: 0 calls seen in 2 steps with a backward; it may run")


@pytest.mark.gpu
def test_a_cuda_graph_is_captured_and_replayed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    static = torch.ones(2, 4, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(static).sum().backward()
        optimizer.step()

    with ts.Scope(tmp_path / "run") as scope:
        scope.wrap(model, optimizer, module_depth=1)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        before = model.first.weight.clone()
        for _ in scope.steps(range(2)):
            graph.replay()
        torch.cuda.synchronize()
    assert not torch.equal(before, model.first.weight)
