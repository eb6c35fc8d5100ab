"""Waits for the results of a model in eval mode are evaluation's, wherever they are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from emulated import Host, on_device
from torch import nn
from torch.distributed.checkpoint._state_dict_stager import StateDictStager

from trainscope.record.hooks import Hooks
from trainscope.record.recorder import Recorder
from trainscope.sync.detector import SyncDetector
from trainscope.sync.loop import LoopState

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="emulates a GPU where none is")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(on_device(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum()


class Rig:
    """A wrapped model, its teacher and an optimizer in an open step, under a live detector."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.model, self.teacher = Net(), Net().eval()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.hooks = Hooks(self.recorder)
        self.hooks.add_model(self.model)
        self.hooks.add_model(self.teacher)
        self.hooks.add_optimizer(self.optimizer)
        self.detector = SyncDetector(dry_run=False, loop=self.recorder.loop)

    def during(self) -> list[str]:
        """What each line that waited waited in, in the order of the lines."""
        return [site.during for site in sorted(self.detector.sites(), key=lambda site: site.line)]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    with made.detector:
        made.recorder.begin_step(0)
        yield made
    made.hooks.remove()


X = on_device(1.0)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_an_evaluation_inside_a_step(rig: Rig, off: type[AbstractContextManager[None]]) -> None:
    rig.model.eval()
    with off():
        total = rig.model(X)
        total.item()
        float(total)
        X.cpu()
    rig.model.train()
    assert rig.during() == ["evaluation"] * 3


def test_parameters_moved_and_loaded_behind_an_evaluation_are_not_evaluated(rig: Rig) -> None:
    """Of the next model, or of the best checkpoint: torch turns gradients off for that."""
    rig.model.eval()
    with torch.no_grad():
        rig.model(X).item()
    following = Net()
    following.weight = nn.Parameter(torch.tensor(1.0).as_subclass(Host))
    with pytest.raises(TypeError, match="Multiple dispatch"):  # the pretended GPU keeps none
        following.to("cuda")
    rig.model.load_state_dict({"weight": torch.tensor([2.0])})
    assert rig.during() == ["evaluation", "training", "training"]


def test_a_state_staged_for_a_checkpoint_behind_an_evaluation_is_not_evaluated() -> None:
    loop = LoopState()
    loop.step, loop.started, loop.eval_mode = 0, True, True
    with SyncDetector(dry_run=True, loop=loop) as detector:
        weight = torch.ones(2, device="cuda")
        StateDictStager().stage({"weight": weight})
        with torch.no_grad():
            weight.tolist()
    staged, read = detector.sites()
    assert (staged.kind, staged.during) == ("d2h", "training")
    assert (read.kind, read.during) == ("tolist", "evaluation")


def test_a_loss_read_without_gradients_is_training(rig: Rig) -> None:
    loss = rig.model(X)
    with torch.no_grad():
        loss.item()
    loss.backward()
    with torch.no_grad():
        loss.item()
    assert rig.during() == ["training"] * 2


def test_with_gradients_nothing_after_the_forward_is_evaluation(rig: Rig) -> None:
    rig.model.eval()
    loss = rig.model(X)
    loss.item()
    assert rig.during() == ["training"]


@pytest.mark.parametrize("trains", ["backward", "optimizer", "forward"])
def test_training_goes_on_after_a_frozen_teacher(rig: Rig, trains: str) -> None:
    loss = rig.model(X)
    with torch.no_grad():
        target = rig.teacher(X)
        target.item()  # what is made of the teacher's answer
    if trains == "backward":
        loss.backward()
    elif trains == "optimizer":
        rig.optimizer.step()
    else:
        rig.model(X)
    with torch.no_grad():
        loss.item()
    assert rig.during() == ["evaluation", "training"]


def test_a_backward_s_own_waits_are_training_though_it_turns_gradients_off(rig: Rig) -> None:
    loss = rig.model(X)
    rig.model.weight.register_hook(lambda grad: None if X.item() else grad)
    rig.teacher(X)
    loss.backward()
    (site,) = rig.detector.sites()
    assert (site.during, site.phase) == ("training", "backward")


@pytest.mark.parametrize("where", ["before the first step", "after the last"])
def test_an_evaluation_outside_steps(rig: Rig, where: str) -> None:
    rig.recorder.drop_step()
    rig.recorder.loop.started = rig.recorder.loop.finished = where == "after the last"
    rig.model.eval()
    with torch.no_grad():
        rig.model(X).item()
    X.item()
    assert rig.during() == ["evaluation", "teardown" if "after" in where else "setup"]


def test_a_model_that_is_not_wrapped_tells_nothing(rig: Rig) -> None:
    with torch.no_grad(), nullcontext():
        Net().eval()(X).item()
    assert rig.during() == ["training"]


def test_what_waits_in_a_loop_that_is_known_to_evaluate(rig: Rig) -> None:
    """Its copies come before its first forward, and its model may run with gradients."""
    rig.recorder.loop.check_evaluates = lambda frame: frame is not None
    rig.recorder.loop.started = False
    X.item()  # before the first step the first loop may turn out to train
    rig.recorder.loop.started = True
    X.item()
    rig.recorder.loop.check_evaluates = None
    X.item()
    assert rig.during() == ["training", "evaluation", "training"]
