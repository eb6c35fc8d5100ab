"""Each optimizer step is one range, with schedulers, scalers and closures around and inside it."""

from __future__ import annotations

import copy
import io
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, StepLR
from written_ranges import WrittenRanges

from trainscope.errors import ConfigError
from trainscope.record.hooks import Hooks
from trainscope.record.hooks.methods import STEPS


def parameter() -> nn.Parameter:
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    return parameter


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([parameter()], lr=0.5)


def value(optimizer: torch.optim.Optimizer) -> float:
    return optimizer.param_groups[0]["params"][0][0].item()


@pytest.mark.parametrize(
    "cls", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop]
)
def test_each_step_is_one_range(cls, hooks: Hooks, ranges: WrittenRanges) -> None:
    watched, alone = cls([parameter()], lr=0.1), cls([parameter()], lr=0.1)
    hooks.add_optimizer(watched)
    hooks.add_optimizer(watched)
    for _ in range(2):
        watched.step()
        alone.step()
    assert ranges.text == "optimizer() optimizer()"
    assert ranges.counts == (0, 0, 2)
    assert value(watched) == value(alone)


def test_several_optimizers_and_an_inherited_step(hooks: Hooks, ranges: WrittenRanges) -> None:
    adamw, adam = torch.optim.AdamW([parameter()]), torch.optim.Adam([parameter()])
    for optimizer in (adam, adamw, sgd_one := sgd()):
        hooks.add_optimizer(optimizer)
    for optimizer in (adamw, adam, sgd_one):
        optimizer.step()
    assert ranges.text == "optimizer() optimizer() optimizer()"


class Lookahead(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


def test_a_step_inside_a_step_is_part_of_it(hooks: Hooks, ranges: WrittenRanges) -> None:
    lookahead, inner = Lookahead([parameter()], lr=0.5), sgd()
    hooks.add_optimizer(inner)
    hooks.add_optimizer(lookahead)
    lookahead.register_step_post_hook(lambda *_: inner.step())
    lookahead.step()
    assert ranges.text == "optimizer()"
    assert ranges.counts == (0, 0, 1)


def test_lbfgs_runs_forward_and_backward_inside_it(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    hooks.add_model(model)
    hooks.add_optimizer(optimizer)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert ranges.text.startswith("optimizer(forward() backward()")
    assert ranges.text.count("optimizer") == 1
    forwards, backwards, steps = ranges.counts
    assert forwards == backwards > 1
    assert steps == 1


@pytest.mark.parametrize("order", ["wrap first", "scheduler first", "between schedulers"])
def test_schedulers_work_in_both_orders(order: str, hooks: Hooks, ranges: WrittenRanges) -> None:
    optimizer = sgd()
    if order == "wrap first":
        hooks.add_optimizer(optimizer)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.1)
    if order != "wrap first":
        hooks.add_optimizer(optimizer)
    if order == "between schedulers":
        LambdaLR(optimizer, lambda epoch: 1.0)
    optimizer.step()
    scheduler.step()  # warns if the scheduler did not see the optimizer's step
    optimizer.step()
    assert ranges.counts == (0, 0, 2)
    assert value(optimizer) == pytest.approx(1.0 - 0.5 - 0.05)


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_two_recorders_share_an_instance_step(first_to_go: int) -> None:
    optimizer = sgd()
    StepLR(optimizer, step_size=1)
    before = vars(optimizer)["step"]
    recorders = WrittenRanges(), WrittenRanges()
    both = [Hooks(each) for each in recorders]
    for each in both:
        each.add_optimizer(optimizer)
    optimizer.step()
    both[first_to_go].remove()
    optimizer.step()
    both[1 - first_to_go].remove()
    assert vars(optimizer)["step"] is before
    assert recorders[first_to_go].counts == (0, 0, 1)
    assert recorders[1 - first_to_go].counts == (0, 0, 2)
    assert both[0].not_seen() == both[1].not_seen() == ()


def test_a_method_put_on_the_instance_stays_a_method(hooks: Hooks, ranges: WrittenRanges) -> None:
    optimizer = sgd()
    optimizer.step = optimizer.step  # as Accelerate leaves it
    hooks.add_optimizer(optimizer)
    StepLR(optimizer, step_size=1)  # reads step.__func__
    optimizer.step()
    assert ranges.counts == (0, 0, 1)
    assert value(optimizer) == 0.5


def test_grad_scaler_steps_through_it(hooks: Hooks, ranges: WrittenRanges) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks.add_optimizer(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for scale_to_inf in (False, True):
        loss = model(torch.ones(1, 2)).sum()
        scaler.scale(loss * (float("inf") if scale_to_inf else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert ranges.text == "backward() optimizer() backward()", "a skipped step is no step"


def test_optimizers_that_step_in_hooks_of_a_backward_are_part_of_it(
    hooks: Hooks, ranges: WrittenRanges
) -> None:
    model = nn.Linear(2, 1)
    optimizers: dict[torch.Tensor, torch.optim.Optimizer] = {
        each: torch.optim.SGD([each], lr=0.1) for each in model.parameters()
    }

    def step(each: torch.Tensor) -> None:
        optimizers[each].step()
        optimizers[each].zero_grad()

    for each, optimizer in optimizers.items():
        each.register_post_accumulate_grad_hook(step)
        hooks.add_optimizer(optimizer)
    for ranges.step in range(20):
        model(torch.ones(1, 2)).sum().backward()
    ranges.step = 20
    torch.ones(1, requires_grad=True).sum().backward()
    assert ranges.text == " ".join(["backward()"] * 21)
    assert ranges.counts == (0, 21, 20), "one for each backward that stepped"
    assert hooks.not_seen() == (
        "the time of the optimizers: they step inside the backward (20 times), whose time holds "
        "theirs",
    )


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "save"])
def test_copies_carry_no_hook(
    how: str, scheduled: bool, hooks: Hooks, ranges: WrittenRanges
) -> None:
    optimizer = sgd()
    if scheduled:
        StepLR(optimizer, step_size=1)
    hooks.add_optimizer(optimizer)
    buffer = io.BytesIO()
    if how == "deepcopy":
        copied = copy.deepcopy(optimizer)
    elif how == "pickle":
        data = pickle.dumps(optimizer)
        assert b"trainscope" not in data
        copied = pickle.loads(data)
    else:
        torch.save(optimizer, buffer)
        assert b"trainscope" not in buffer.getvalue()
        buffer.seek(0)
        copied = torch.load(buffer, weights_only=False)
    copied.step()
    assert ranges.text == ""


@pytest.mark.parametrize("scheduled", [False, True])
def test_no_optimizer_is_kept_alive(scheduled: bool, hooks: Hooks) -> None:
    optimizer = sgd()
    if scheduled:
        StepLR(optimizer, step_size=1)
    hooks.add_optimizer(optimizer)
    gone = weakref.ref(optimizer)
    del optimizer
    assert gone() is None, "freed at once, with no garbage collection"
    assert not any(entry.watchers for entry in STEPS.entries.values())


class Duck:
    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> int:
        self.steps += 1
        return self.steps


def test_what_only_has_a_step_is_watched_too(hooks: Hooks, ranges: WrittenRanges) -> None:
    duck = Duck()
    hooks.add_optimizer(duck)
    assert [duck.step(), duck.step()] == [1, 2]
    assert ranges.counts == (0, 0, 2)


def test_what_has_no_step_is_refused(hooks: Hooks) -> None:
    with pytest.raises(ConfigError, match="list has none; pass optimizers one by one"):
        hooks.add_optimizer([sgd()])
    assert not hooks.watches_optimizers


def test_an_exception_in_a_step_passes(hooks: Hooks, ranges: WrittenRanges) -> None:
    optimizer = sgd()
    hooks.add_optimizer(optimizer)

    def closure() -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        optimizer.step(closure)
    optimizer.step()
    assert ranges.text == "optimizer() optimizer()"


def test_an_optimizer_that_went_silent_is_told_and_one_that_another_succeeded_is_not(
    hooks: Hooks, ranges: WrittenRanges
) -> None:
    """First a teacher is trained, then its student; or one of two stops being seen."""

    def train(optimizers: list[torch.optim.Optimizer], steps: int) -> None:
        for _ in range(steps):
            ranges.step += 1
            torch.ones(1, requires_grad=True).sum().backward()
            for optimizer in optimizers:
                optimizer.step()

    first, second, third = sgd(), sgd(), sgd()
    for optimizer in (first, second, third):
        hooks.add_optimizer(optimizer)
    train([first, second], 20)
    train([third], 40)
    assert hooks.not_seen() == ()
    train([], 60)
    train([first], 1)
    (told,) = hooks.not_seen()
    last = ranges.step - 61
    assert told.startswith(f"optimizer step of SGD: last seen in step {last}, and not in the 61")


def test_only_steps_of_the_loop_are_those_in_which_an_optimizer_was_silent(
    hooks: Hooks, ranges: WrittenRanges
) -> None:
    """Adam first, L-BFGS on the whole data behind the loop, and a model adapted between steps."""
    adam, adapting = sgd(), sgd()
    hooks.add_optimizer(adam)
    hooks.add_optimizer(adapting)
    adapting.step()
    for ranges.step in range(20):
        nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()
        adam.step()
    ranges.step = -1
    for _ in range(40):
        nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()
    assert hooks.not_seen() == ()


def test_an_optimizer_that_later_steps_do_not_step_is_told(
    hooks: Hooks, ranges: WrittenRanges
) -> None:
    first = sgd()
    hooks.add_optimizer(first)
    for ranges.step in range(20):
        nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()
        if ranges.step < 5:
            first.step()
    (told,) = hooks.not_seen()
    assert told.startswith(
        "optimizer step of SGD: last seen in step 4, and not in the 15 later steps with a "
        "backward; if it is still called, it may"
    )
