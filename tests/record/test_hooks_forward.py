"""A wrapped model's call is one range, whatever kind of model it is."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed.fsdp
from torch import nn
from torch.utils.checkpoint import checkpoint
from warm import warm_script
from written_ranges import WrittenRanges

from trainscope.errors import ConfigError
from trainscope.record.hooks import Hooks
from trainscope.record.hooks.methods import CALLS


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.linear(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.rest = nn.Sequential(Block(), nn.Sequential(Block()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x))


class OwnCall(nn.Module):
    def __call__(self, x: torch.Tensor, *, twice: bool = False) -> torch.Tensor:
        result = super().__call__(x)
        return result * 2 if twice else result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class InheritsCall(OwnCall):
    pass


class OddTrain(Block):
    def train(self, mode: bool = True, freeze: str = "none") -> OddTrain:
        self.frozen = freeze
        return super().train(mode)


X = torch.ones(2, 4)


@pytest.mark.parametrize(
    "make",
    [
        Net,
        Block,
        OwnCall,
        InheritsCall,
        OddTrain,
        lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.ReLU())),
        lambda: nn.Linear(4, 4),
        lambda: torch.jit.script(Block()),
        lambda: torch.jit.trace(Block(), X),
        lambda: torch.fx.symbolic_trace(Net()),
    ],
    ids=[
        "net",
        "block",
        "own call",
        "inherited call",
        "odd train",
        "sequential in sequential",
        "linear",
        "script",
        "traced",
        "graph module",
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_each_call_is_one_forward_and_changes_nothing(
    make, hooks: Hooks, ranges: WrittenRanges
) -> None:
    model, twin = make(), make()
    expected = model(X)
    state = {name: id(value) for name, value in model.state_dict(keep_vars=True).items()}
    instance = dict(vars(model))
    hooks.add_model(model)
    assert torch.equal(model(X), expected)
    twin(X)
    assert ranges.text == "forward()"
    assert {n: id(v) for n, v in model.state_dict(keep_vars=True).items()} == state
    assert vars(model).keys() == instance.keys()


def test_arguments_reach_a_call_of_the_class_s_own(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = InheritsCall()
    hooks.add_model(model)
    assert torch.equal(model(torch.ones(1), twice=True), torch.tensor([4.0]))


def test_train_with_another_signature_stays_as_it_is(hooks: Hooks) -> None:
    model = OddTrain()
    hooks.add_model(model)
    assert model.train(True, freeze="first") is model
    assert model.frozen == "first"


class SaysEvaluating(nn.Module):
    def __init__(self, ranges: WrittenRanges) -> None:
        super().__init__()
        self.ranges = ranges
        self.said: list[bool] = []

    def forward(self, fails: bool = False) -> None:
        self.said.append(self.ranges.loop.evaluating)
        if fails:
            raise ZeroDivisionError


def test_evaluation_is_told_apart(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = SaysEvaluating(ranges)
    hooks.add_model(model)
    model()
    with torch.no_grad():
        model()
    with torch.inference_mode():
        model()
    model.eval()
    model()
    with pytest.raises(ZeroDivisionError):
        model(fails=True)
    assert not ranges.loop.evaluating
    model.train()
    model()
    assert model.said == [False, True, True, True, True, False]
    assert ranges.text == f"forward() {'evaluation() ' * 4}forward()"
    assert ranges.counts == (2, 0, 0)


def test_evaluating_stays_true_when_the_user_set_it(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = SaysEvaluating(ranges)
    hooks.add_model(model)
    ranges.loop.evaluating = True
    model.eval()
    model()
    assert ranges.loop.evaluating


def test_an_exception_passes_with_one_frame_of_ours(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = Net()
    hooks.add_model(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        model(torch.ones(2, 5))
    files = [frame.filename for frame in traceback.extract_tb(caught.tb)]
    assert sum("trainscope" in file for file in files) == 1
    assert ranges.text == "forward()"


def test_only_the_outermost_wrapped_call_opens_a_range(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = Net()
    for each in (model, model.first, model, model.rest):
        hooks.add_model(each)
    model(X)
    model.first(X)
    assert ranges.text == "forward() forward()"


def test_submodules_down_to_a_depth_are_named_by_path(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = Net()
    hooks.add_model(model, module_depth=2)
    hooks.add_model(model, module_depth=2)
    model(X)
    assert ranges.text == ("forward(first(first.linear() first.act()) rest(rest.0() rest.1()))")
    ranges.written.clear()
    model.first(X)
    assert ranges.text == "", "a submodule called on its own is no part of a forward"


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.unused = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_submodules_that_were_not_called_are_told(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = Stack()
    hooks.add_model(model, module_depth=2)
    assert hooks.not_seen() == ()
    model(X)
    assert ranges.text == "forward(layers.0() layers.1())"
    assert hooks.not_seen() == (
        "ranges of submodules unused: none seen in 1 forwards; a compiled model runs as a whole, "
        "or the model did not call them",
    )


class CallsItself(nn.Module):
    def forward(self, depth: int) -> int:
        return self(depth - 1) + 1 if depth else 0


def test_a_module_that_calls_itself_has_one_range(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = nn.Sequential(CallsItself())
    hooks.add_model(model, module_depth=1)
    assert model(3) == 3
    assert ranges.text == "forward(0())"


def test_a_subclass_and_its_base_both_wrapped(hooks: Hooks, ranges: WrittenRanges) -> None:
    for first, second in ((Block(), OddTrain()), (OddTrain(), Block())):
        ranges.written.clear()
        own = Hooks(ranges)
        own.add_model(nn.Sequential(first, second))
        own.add_model(first)
        own.add_model(second)
        second(first(X))
        own.remove()
        assert ranges.text == "forward() forward()"


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_two_recorders_watch_one_model(first_to_go: int) -> None:
    model, recorders = Block(), (WrittenRanges(), WrittenRanges())
    both = [Hooks(each) for each in recorders]
    for each in both:
        each.add_model(model, module_depth=1)
    model(X)
    assert [each.text for each in recorders] == ["forward(linear() act())"] * 2
    both[first_to_go].remove()
    model(X)
    texts = ["forward(linear() act())"] * 2
    texts[1 - first_to_go] = "forward(linear() act()) forward(linear() act())"
    assert [each.text for each in recorders] == texts
    both[1 - first_to_go].remove()
    assert "__call__" not in vars(Block)


def test_another_thread_opens_nothing(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = Block()
    hooks.add_model(model)
    thread = threading.Thread(target=model, args=(X,))
    thread.start()
    thread.join()
    assert ranges.text == ""


def test_a_model_that_is_gone_is_forgotten(hooks: Hooks, ranges: WrittenRanges) -> None:
    known = len(CALLS.entries)
    for _ in range(50):  # ids are soon reused
        model = Block()
        hooks.add_model(model)
        model(X)
        del model
    gc.collect()
    assert len(CALLS.entries) == known
    assert ranges.counts == (50, 0, 0)


def test_a_deepcopy_carries_no_hook(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = Net()
    hooks.add_model(model, module_depth=2)
    copy.deepcopy(model)(X)
    assert ranges.text == ""


LOAD_WITHOUT_US = """
import sys
sys.modules["trainscope"] = None
import io, pickle, torch
data = open("model", "rb").read()
if sys.argv[1] == "save":
    model = torch.load(io.BytesIO(data), weights_only=False)
else:
    model = pickle.loads(data)
print(float(model(torch.ones(2, 4)).sum()))
"""


@pytest.mark.parametrize("how", ["pickle", "save"])
def test_it_pickles_and_loads_where_trainscope_is_not(hooks: Hooks, how: str, place: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    hooks.add_model(model, module_depth=1)
    buffer = io.BytesIO()
    if how == "save":
        torch.save(model, buffer)
    else:
        pickle.dump(model, buffer)
    assert b"trainscope" not in buffer.getvalue()
    (place / "model").write_bytes(buffer.getvalue())
    loaded = warm_script(place, LOAD_WITHOUT_US, how).end()
    assert loaded.status == 0, loaded.err
    assert float(loaded.out) == pytest.approx(model(X).sum().item())


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_no_forward(reentrant: bool, hooks: Hooks, ranges: WrittenRanges) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()
            self.calls = 0
            self.inner.register_forward_pre_hook(self.count)

        def count(self, *_: object) -> None:
            self.calls += 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    model = Checkpointed()
    hooks.add_model(model, module_depth=2)
    hooks.add_model(model.inner)
    model(X.clone().requires_grad_()).sum().backward()
    assert model.calls == 2
    # the reentrant kind runs its forward with gradients off, beneath the one forward
    assert ranges.text == "forward(inner(inner.linear() inner.act())) backward()"
    assert ranges.counts == (1, 1, 0)


def test_a_class_swapped_after_wrap_is_still_seen(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = Block()
    hooks.add_model(model)
    model.__class__ = type("FSDPBlock", (Block,), {})  # as fully_shard does
    model(X)
    assert ranges.text == "forward()"


def test_fx_traces_the_same_graph(hooks: Hooks) -> None:
    model = Net()
    expected = str(torch.fx.symbolic_trace(model).graph)
    hooks.add_model(model, module_depth=3)
    assert str(torch.fx.symbolic_trace(model).graph) == expected


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("store") / "file"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("order", ["wrap first", "ddp first"])
def test_ddp(order: str, group: None, hooks: Hooks, ranges: WrittenRanges) -> None:
    model: nn.Module = Net()
    if order == "wrap first":
        hooks.add_model(model)
        model = nn.parallel.DistributedDataParallel(model)
    else:
        model = nn.parallel.DistributedDataParallel(model)
        hooks.add_model(model)
        hooks.add_model(model.module)
    for _ in range(2):
        model(X).sum().backward()
    assert ranges.text == "forward() backward() forward() backward()"


@pytest.mark.parametrize("order", ["wrap first", "shard first"])
def test_fully_sharded(order: str, group: None, hooks: Hooks, ranges: WrittenRanges) -> None:
    model = Net()
    if order == "wrap first":
        hooks.add_model(model, module_depth=1)
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    for each in (model.first, model):
        torch.distributed.fsdp.fully_shard(each, mesh=mesh)
    if order == "shard first":
        hooks.add_model(model, module_depth=1)
    for _ in range(2):
        model(X).sum().backward()
    assert ranges.text == " ".join(["forward(first() rest()) backward()"] * 2)


def test_what_is_no_model_is_refused(hooks: Hooks) -> None:
    with pytest.raises(ConfigError, match=r"must be a torch\.nn\.Module, not function"):
        hooks.add_model(lambda x: x)  # type: ignore[arg-type]
    for depth in (-1, 1.5, True):
        with pytest.raises(ConfigError, match="module_depth must be an integer of 0 or more"):
            hooks.add_model(Block(), module_depth=depth)  # type: ignore[arg-type]
