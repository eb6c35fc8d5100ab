"""Wrapping changes no compilation, and each call of a compiled model is still one forward."""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils._python_dispatch import TorchDispatchMode
from written_ranges import WrittenRanges

from trainscope.record.hooks import Hooks

X = torch.ones(2, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU()))
        self.head = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.head(self.body(x)))


class Breaks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Net(), Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


class OwnCall(Net):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x) * 2


def hooked_net() -> nn.Module:
    net = Net()
    net.register_forward_hook(lambda *_: torch._dynamo.graph_break())
    return net


def sequential() -> nn.Module:
    return nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.ReLU())


MODELS = {
    "net": Net,
    "sequential": sequential,
    "own call": OwnCall,
    "breaks": Breaks,
    "forward hook": hooked_net,
}


class Graphs:
    """A backend that runs the graphs as they are and counts them and their nodes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.sizes.append(len(graph.graph.nodes))
        return graph.forward


def compiled(model: nn.Module, how: str, fullgraph: bool, backend: Any) -> Callable[..., Any]:
    if how == "model.compile()":
        model.compile(fullgraph=fullgraph, backend=backend)
        return model
    if how == "torch.compile(model)":
        return torch.compile(model, fullgraph=fullgraph, backend=backend)
    return torch.compile(lambda x: model(x), fullgraph=fullgraph, backend=backend)


def outcome(
    kind: str, how: str, fullgraph: bool, when: str, depth: int
) -> tuple[list[int], str, Any, str]:
    """Graph sizes, error, result, and the ranges of two calls."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, graphs, ranges = MODELS[kind](), Graphs(), WrittenRanges()
    hooks = Hooks(ranges)
    if when == "wrap first":
        hooks.add_model(model, module_depth=depth)
    call = compiled(model, how, fullgraph, graphs)
    if when == "compile first":
        hooks.add_model(model, module_depth=depth)
    error, result = "", None
    try:
        for _ in range(2):
            result = call(X)
    except Exception as raised:
        error = type(raised).__name__
    hooks.remove()
    return graphs.sizes, error, result, ranges.text


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("how", ["torch.compile(model)", "model.compile()", "in a function"])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_graphs_are_those_without_us(kind: str, how: str, fullgraph: bool) -> None:
    sizes, error, result, _ = outcome(kind, how, fullgraph, "never", 0)
    for when in ("wrap first", "compile first"):
        for depth in (0, 2):
            *same, text = outcome(kind, how, fullgraph, when, depth)
            assert same[:2] == [sizes, error], f"{when}, module_depth={depth}"
            assert result is None or torch.equal(same[2], result)
            if how != "in a function" and not error:
                outermost = [part for part in text.split() if part.startswith("forward(")]
                assert len(outermost) == 2, text


@pytest.mark.parametrize("when", ["wrap first", "compile first"])
@pytest.mark.parametrize("how", ["torch.compile(model)", "model.compile()"])
@pytest.mark.parametrize("kind", ["net", "own call"])
def test_a_training_step_compiled_fullgraph(kind: str, how: str, when: str) -> None:
    torch._dynamo.reset()
    model, ranges = MODELS[kind](), WrittenRanges()
    hooks = Hooks(ranges)
    if when == "wrap first":
        hooks.add_model(model)
    call = compiled(model, how, True, "aot_eager")
    if when == "compile first":
        hooks.add_model(call)  # type: ignore[arg-type]
    for _ in range(2):
        call(X).sum().backward()
    with torch.no_grad():
        call(X)
    hooks.remove()
    # what aot differentiates while it compiles is no backward of the loop
    assert ranges.text == "forward() backward() forward() backward() evaluation()"
    call(X)
    assert ranges.counts == (2, 2, 0)
    assert hooks.not_seen() == ()


def test_each_of_many_compiled_classes_keeps_its_own_recompile_limit() -> None:
    torch._dynamo.reset()
    ranges = WrittenRanges()
    hooks = Hooks(ranges)
    many = torch._dynamo.config.recompile_limit + 2
    for index in range(many):
        code = Net.forward.__code__.replace(co_name=f"forward_{index}")
        forward = types.FunctionType(code, globals())
        model = type(f"Net{index}", (Net,), {"forward": forward})()
        hooks.add_model(model)
        torch.compile(model, fullgraph=True, backend="eager")(X)
    hooks.remove()
    assert ranges.counts == (many, 0, 0)


def test_ddp_compiled_from_outside(tmp_path: Any) -> None:
    torch._dynamo.reset()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        model, ranges = Net(), WrittenRanges()
        hooks = Hooks(ranges)
        hooks.add_model(model)
        call = torch.compile(nn.parallel.DistributedDataParallel(model), backend="aot_eager")
        for _ in range(2):
            call(X).sum().backward()
        hooks.remove()
        assert ranges.text == "forward() backward() forward() backward()"
    finally:
        torch.distributed.destroy_process_group()


def test_a_model_inside_a_larger_compiled_function_is_told() -> None:
    torch._dynamo.reset()
    model, other, ranges = Net(), Net(), WrittenRanges()
    hooks = Hooks(ranges)
    hooks.add_model(model)
    hooks.add_model(other)
    function = torch.compile(lambda x: model(x).sum(), fullgraph=True, backend="aot_eager")
    for ranges.step in range(20):
        function(X).backward()
        if ranges.step < 4:
            other(X)
    told = hooks.not_seen()
    why = (
        "it may run inside a larger compiled function, or the loop may call a method of the model "
        "instead of the model"
    )
    assert told == (
        f"forward of Net: 0 calls seen in 20 steps with a backward; {why}",
        "forward of Net: last seen in step 3, and not in the 16 later steps with a backward; "
        f"if it is still called, {why}",
    )
    hooks.remove()
    assert hooks.not_seen() == told


class Following(TorchDispatchMode):
    """A mode with which torch.compile goes on compiling, as a dry run's."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [nullcontext, Following])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_a_compiled_function_runs_between_its_graphs_is_seen(mode: Any) -> None:
    torch._dynamo.reset()
    model, graphs, ranges = Net(), Graphs(), WrittenRanges()
    model.forward = torch.compiler.disable(model.forward)  # type: ignore[method-assign]
    hooks = Hooks(ranges)
    hooks.add_model(model)
    hooks.add_optimizer(Plain(model.parameters(), lr=0.1))

    @torch.compile(backend=graphs)
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x * 2).sum() * 3
        loss.backward()
        return loss.detach() + 1

    with mode():
        for _ in range(3):
            step(X)
    hooks.remove()
    assert ranges.text == " ".join(["forward() backward()"] * 3)
    assert len(graphs.sizes) == 3, "before the model, between it and the backward, after that"


def test_submodules_of_a_compiled_model_are_told() -> None:
    torch._dynamo.reset()
    model, ranges = Net(), WrittenRanges()
    hooks = Hooks(ranges)
    hooks.add_model(model, module_depth=2)
    torch.compile(model, fullgraph=True, backend="eager")(X)
    (told,) = hooks.not_seen()
    hooks.remove()
    assert told.startswith("ranges of submodules body, body.0, body.1, head: none seen in 1 forw")


class Plain(torch.optim.Optimizer):
    """An optimizer that compiles fullgraph; torch's own break the graph by themselves."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(parameter.grad, alpha=-group["lr"])


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam foreach": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
    "adamw tensor lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), foreach=False),
    "plain": lambda p: Plain(p, lr=0.1),
}


def step_outcome(kind: str, how: str, fullgraph: bool, when: str, scheduled: bool) -> Any:
    """Graph sizes, error, weights; and how many of two steps were seen, with what is told."""
    torch._dynamo.reset()
    parameters = [nn.Parameter(torch.full((3,), float(n))) for n in range(2)]
    for parameter in parameters:
        parameter.grad = torch.ones(3)
    optimizer, graphs, ranges = OPTIMIZERS[kind](parameters), Graphs(), WrittenRanges()
    if scheduled:
        StepLR(optimizer, step_size=1)
    hooks = Hooks(ranges)
    if when == "wrap first":
        hooks.add_optimizer(optimizer)
    function = optimizer.step if how == "direct" else (lambda: optimizer.step())
    call, error = torch.compile(function, fullgraph=fullgraph, backend=graphs), ""
    if when == "compile first":
        hooks.add_optimizer(optimizer)
    try:
        for _ in range(2):
            call()
    except Exception as raised:
        error = type(raised).__name__
    for ranges.step in range(2):
        torch.ones(1, requires_grad=True).sum().backward()
    hooks.remove()
    weights = torch.cat([parameter.detach() for parameter in parameters])
    return (graphs.sizes, error, weights.tolist()), ranges.optimizer_steps, hooks.not_seen()


@pytest.mark.parametrize("scheduled", [False, True], ids=["alone", "scheduled"])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("how", ["direct", "in a function"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_step_compiles_as_without_us(
    kind: str, how: str, fullgraph: bool, scheduled: bool
) -> None:
    alone, _, _ = step_outcome(kind, how, fullgraph, "never", scheduled)
    for when in ("wrap first", "compile first"):
        same, seen, told = step_outcome(kind, how, fullgraph, when, scheduled)
        if not alone[1]:  # beneath our plain frame some compile that would not without us
            assert same == alone
            assert seen in (0, 2), "both steps or none"
            assert (seen == 0) == any("optimizer step of" in sentence for sentence in told)
