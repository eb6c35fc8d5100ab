"""Models that are wrapped, copied, traced, shared or built in odd ways stay what they were."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from swapped_nets import ALL, Small, ops_of, small_input
from torch import nn
from torch.nn import functional as F

from trainscope_kernels import KernelError, swap


@pytest.fixture
def x() -> torch.Tensor:
    return small_input()


class Wrapping(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.inner(*args, **kwargs)


class Named(Small):
    def forward(self, input_ids, attention_mask=None, *, labels=None) -> torch.Tensor:
        """What a trainer reads."""
        return super().forward(input_ids)


def swapped(model: nn.Module) -> nn.Module:
    swap(model, impl="reference")
    return model


def test_what_trainers_read_of_a_forward_stays(x: torch.Tensor) -> None:
    model = Named()
    before = inspect.signature(model.forward)
    swap(model, impl="reference")
    assert inspect.signature(model.forward) == before
    assert list(before.parameters) == ["input_ids", "attention_mask", "labels"]
    assert model.forward.__code__ is Named.forward.__code__
    assert model.forward.__name__ == "forward"
    torch.testing.assert_close(model(input_ids=x, labels=None), model.forward(x))


def test_arguments_and_keywords_pass_through(x: torch.Tensor) -> None:
    model = Wrapping(Wrapping(Small()))
    expected = model(x=x)
    torch.testing.assert_close(swapped(model)(x=x), expected)
    assert ops_of(lambda: model(x=x)) == ALL


def test_a_shallow_copy_computes_with_its_own_modules(x: torch.Tensor) -> None:
    """As nn.DataParallel makes one for each GPU, and runs each in a thread."""
    model = swapped(Small())
    replicas = []
    for make in (copy.copy, Small._replicate_for_data_parallel):
        replica: Any = make(model)
        replica._modules = {**model._modules, "project": nn.Linear(8, 8)}
        replicas.append(replica)
    expected = []
    for replica in replicas:
        plain = Small()
        plain.project = replica._modules["project"]
        expected.append(plain(x))
    outputs: dict[int, torch.Tensor] = {}

    def run(i: int) -> None:
        outputs[i] = replicas[i](x)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, wanted in enumerate(expected):
        torch.testing.assert_close(outputs[i], wanted)


def test_a_shallow_copy_outlives_the_model(x: torch.Tensor) -> None:
    model = swapped(Small())
    other, expected = copy.copy(model), model(x)
    del model
    assert torch.equal(other(x), expected)


def test_a_deleted_model_is_gone_at_once(x: torch.Tensor) -> None:
    model = swapped(Wrapping(Small()))
    model(x)
    alive, forward = weakref.ref(model), model.forward
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()
    with pytest.raises(KernelError, match="keep the model, not its forward"):
        forward(x)


def test_each_copy_refers_to_itself(x: torch.Tensor) -> None:
    model = swapped(Wrapping(Small()))
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    expected = model(x)
    for each in copies:
        assert torch.equal(each(x), expected)
        assert ops_of(each, x) == ALL
        for module in (each, each.inner):
            assert module.forward.module is module


def test_nothing_leaks_to_another_thread(x: torch.Tensor) -> None:
    model = swapped(Small())
    inside, go_on = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        inside.set()
        assert go_on.wait(10)

    model.project.register_forward_hook(hold)
    running = threading.Thread(target=model, args=(x,))
    running.start()
    assert inside.wait(10)
    heard = ops_of(F.gelu, x)
    go_on.set()
    running.join()
    assert heard == []


def test_a_hook_that_calls_the_model_again(x: torch.Tensor) -> None:
    model = Wrapping(Small())
    expected = model(x)
    swap(model, impl="reference")
    depth, inner = [0], []

    def again(*_: object) -> None:
        if depth[0] < 2:
            depth[0] += 1
            inner.append(model(x))

    model.inner.project.register_forward_hook(again)
    for output in (model(x), *inner):
        torch.testing.assert_close(output, expected)
    assert len(inner) == 2
    assert ops_of(F.gelu, x) == []


class Stops(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt


def test_an_interrupt_leaves_no_mode_behind(x: torch.Tensor) -> None:
    model = swapped(nn.Sequential(Small(), Stops()))
    with pytest.raises(KeyboardInterrupt):
        model(x)
    assert torch.overrides._get_current_function_mode() is None


class Streams(nn.Module):
    def forward(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield F.gelu(x)


class Waits(nn.Module):
    async def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x)


@pytest.mark.parametrize("kind", [Streams, Waits])
def test_a_forward_that_runs_later_is_left_and_said(kind: type[nn.Module]) -> None:
    swaps = swap(kind(), impl="reference")
    assert [(each.where, each.was, each.now) for each in swaps] == [
        ("the model", "calls in it", None)
    ]
    assert "runs after the call has returned" in str(swaps)


def test_a_generator_inside_a_model_is_reached(x: torch.Tensor) -> None:
    class Consumes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stream = Streams()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(self.stream(x))  # type: ignore[return-value]

    model = Consumes()
    swaps = swap(model, impl="reference")
    assert ops_of(model, x) == ["gelu"]
    assert [(each.where, each.was) for each in swaps] == [("calls in Streams", "F.gelu")]


def test_a_forward_of_the_instance_is_left(x: torch.Tensor) -> None:
    """A library that hooks a model by its forward: what it put there is called in either order."""
    model = Small()
    calls: list[str] = []
    own = model.forward

    def hooked(*args: Any) -> torch.Tensor:
        calls.append("hooked")
        return own(*args)

    model.forward = functools.update_wrapper(hooked, own)  # type: ignore[method-assign]
    swaps = swap(model, impl="reference")
    assert [each.why_not for each in swaps.left] == [
        "its forward was replaced on the instance; swap before that is done"
    ]
    model(x)
    assert calls == ["hooked"]
    after = swapped(Small())
    own = after.forward
    after.forward = functools.update_wrapper(hooked, own)  # type: ignore[method-assign]
    assert ops_of(after, x) == ALL


def test_a_library_that_wraps_the_function_of_a_method(x: torch.Tensor) -> None:
    """As accelerate puts a model under autocast, and takes it out again."""
    model = Named()
    signature = inspect.signature(model.forward)
    autocast = torch.autocast("cpu", torch.bfloat16)
    with autocast:
        expected = model(x)
    swap(model, impl="reference")
    own = model.forward.__func__
    model.forward = types.MethodType(autocast(own), model)  # type: ignore[method-assign]
    torch.testing.assert_close(model(x), expected, rtol=2e-2, atol=2e-2)
    assert ops_of(model, x) == ALL
    assert inspect.signature(model.forward) == signature
    assert not hasattr(own, "__wrapped__")  # it looks for what was wrapped last
    model.forward = types.MethodType(own, model)  # type: ignore[method-assign]
    assert ops_of(copy.deepcopy(model), x) == ALL


def test_an_activation_with_state_of_its_own_is_left(x: torch.Tensor) -> None:
    changed, holds = nn.GELU(), nn.GELU()
    changed.forward = lambda x: x * 0  # type: ignore[method-assign]
    holds.scale = nn.Parameter(torch.ones(1))
    model = nn.Sequential(changed, holds)
    expected, keys = model(x), list(model.state_dict())
    swaps = swap(model, impl="reference")
    assert [each.why_not for each in swaps] == [
        "its forward was replaced on the instance",
        "it holds parameters, buffers or modules, which would be lost",
    ]
    assert torch.equal(model(x), expected)
    assert list(model.state_dict()) == keys


def test_a_module_that_refuses_attributes(x: torch.Tensor) -> None:
    class Refuses(Small):
        def __setattr__(self, name: str, value: Any) -> None:
            assert name != "forward"
            super().__setattr__(name, value)

    assert ops_of(swapped(Refuses()), x) == ALL


def test_torchscript_is_left_and_said(x: torch.Tensor) -> None:
    class Plain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gelu(x)

    traced = torch.jit.trace(Plain(), (x,))
    for model, where in ((traced, "the model"), (Wrapping(traced), "inner")):
        swaps = swap(model, impl="reference")
        assert [(each.where, each.why_not) for each in swaps] == [
            (where, "its code cannot be reached")
        ]
        assert ops_of(model, x) == []


def test_a_swapped_model_is_traced_and_exported(x: torch.Tensor) -> None:
    model = Small().eval()
    expected = model(x)
    swap(model, impl="reference")
    traced = torch.jit.trace(model, (x,))
    torch.testing.assert_close(traced(x), expected)
    assert ops_of(traced, x) == ALL
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), expected)
    names = [str(node.target) for node in program.graph.nodes]
    assert [n.split(".")[1] for n in names if n.startswith("trainscope_kernels")] == ALL


def test_a_class_made_by_a_library_is_seen_through(x: torch.Tensor) -> None:
    class Doubled(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * 2

    model = Small()
    model.scale = nn.Parameter(torch.ones(2))
    nn.utils.parametrize.register_parametrization(model, "scale", Doubled())
    nn.utils.parametrizations.weight_norm(model.project)
    expected = model(x)
    swaps = swap(model, impl="reference")
    assert [each.was for each in swaps.changed[1:]] == [
        *("F.gelu", "F.softmax", "F.scaled_dot_product_attention")
    ]
    torch.testing.assert_close(model(x), expected)
    assert ops_of(copy.deepcopy(model), x) == ALL


def test_code_in_a_base_class_is_listed() -> None:
    class Derived(Small):
        pass

    swaps = swap(Derived(), impl="reference")
    assert {each.was for each in swaps} > {"F.gelu", "F.softmax"}


def test_tied_weights_stay_tied(x: torch.Tensor) -> None:
    model = nn.Sequential(Small(), nn.Linear(8, 8))
    model[1].weight = model[0].project.weight
    swap(model, impl="reference")
    clone = copy.deepcopy(model)
    for each in (model, clone):
        assert each[1].weight is each[0].project.weight
    torch.testing.assert_close(model(x), clone(x))


@pytest.mark.parametrize("scale", [torch.tensor(0.5), torch.inf])
def test_a_scale_that_only_torch_takes_is_left_to_it(x: torch.Tensor, scale: Any) -> None:
    class Scaled(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, q, q, scale=scale)

    model, q = Scaled(), x[None].abs()
    expected = model(q)
    torch.testing.assert_close(swapped(model)(q), expected, equal_nan=True)
    assert ops_of(model, q) == []


def test_a_table_of_functions(x: torch.Tensor) -> None:
    """As Hugging Face chooses its attention."""
    table = {
        "own": lambda q: F.scaled_dot_product_attention(q, q, q),
        "direct": F.scaled_dot_product_attention,
    }

    class Chooses(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return table["own"](q) + table["direct"](q, q, q)

    assert ops_of(swapped(Chooses()), x[None]) == ["flash_attention"] * 2


def test_a_method_that_runs_a_part(x: torch.Tensor) -> None:
    class Generates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

        def generate(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

    assert ops_of(swapped(Generates()).generate, x) == ALL  # type: ignore[arg-type]
