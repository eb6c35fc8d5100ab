"""A fault of ours ends the recording with one warning; the user's loop never notices."""

from __future__ import annotations

import os
import warnings

import pytest
import torch
from torch import nn
from written_ranges import WrittenRanges

from trainscope.errors import ConfigError
from trainscope.record.hooks import Hooks


class Broken(WrittenRanges):
    """Raises in ``open`` or in ``close`` of the named range."""

    def __init__(self, where: str, name: str) -> None:
        super().__init__()
        self.where = where
        self.name = name
        self.asked = 0

    def open(self, name: str) -> int:
        self.asked += 1
        if (self.where, self.name) == ("open", name):
            raise LookupError("a bug of ours")
        return super().open(name)

    def close(self, token: int) -> None:
        if (self.where, self.name) == ("close", self.open_names[-1]):
            raise LookupError("a bug of ours")
        super().close(token)


def train(steps: int, recorder: WrittenRanges | None) -> tuple[list[torch.Tensor], Hooks | None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = None
    if recorder is not None:
        hooks = Hooks(recorder)
        hooks.add_model(model, module_depth=1)
        hooks.add_optimizer(optimizer)
    for _ in range(steps):
        loss = model(torch.ones(2, 4)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model(torch.ones(2, 4))
    return [parameter.detach() for parameter in model.parameters()], hooks


@pytest.mark.parametrize("where", ["open", "close"])
@pytest.mark.parametrize("name", ["forward", "0", "backward", "optimizer", "evaluation"])
def test_one_warning_and_the_same_weights(where: str, name: str) -> None:
    expected, _ = train(3, None)
    recorder = Broken(where, name)
    with pytest.warns(RuntimeWarning, match=r"LookupError: a bug of ours.*goes on") as caught:
        weights, hooks = train(3, recorder)
    assert hooks is not None
    asked = recorder.asked
    assert len(caught) == 1
    assert all(map(torch.equal, weights, expected))
    assert "ranges after an error: LookupError: a bug of ours" in hooks.not_seen()
    torch.ones(1, requires_grad=True).sum().backward()
    assert recorder.asked == asked, "nothing is asked of a recorder that failed"
    hooks.remove()
    assert not recorder.loop.evaluating


def test_warnings_as_errors_do_not_end_the_loop(capsys: pytest.CaptureFixture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, hooks = train(2, Broken("open", "forward"))
    assert hooks is not None
    hooks.remove()
    assert "a bug of ours" in capsys.readouterr().err


def test_a_fault_while_wrapping_costs_that_one_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hooks, "_add_submodules", lambda *_: 1 / 0)
    recorder = WrittenRanges()
    with pytest.warns(RuntimeWarning, match="cannot record the forward of.*ZeroDivisionError"):
        _, hooks = train(1, recorder)
    monkeypatch.undo()
    assert hooks is not None
    hooks.remove()
    assert recorder.text == "forward() backward() optimizer() evaluation()"
    assert hooks.not_seen() == ("the forward of Sequential: ZeroDivisionError: division by zero",)
    assert "__call__" not in vars(nn.Sequential)


class Frozen(type):
    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError(f"{cls.__name__} is frozen")


class FrozenModel(nn.Linear, metaclass=Frozen):
    """Its class lets nothing be set on it."""


class ToldByHand:
    """An optimizer of which Python cannot tell where its ``step`` stands."""

    def __getattr__(self, name: str) -> object:
        if name == "step":
            return lambda: None
        raise AttributeError(name)


def test_what_cannot_be_watched_is_told_and_all_else_is_recorded(
    capsys: pytest.CaptureFixture,
) -> None:
    recorder, model = WrittenRanges(), FrozenModel(2, 1)
    hooks = Hooks(recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            hooks.add_model(model)
            hooks.add_optimizer(ToldByHand())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks.add_optimizer(optimizer)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    notes = hooks.not_seen()
    hooks.remove()
    assert recorder.text == "backward() optimizer()"
    assert [note.partition(":")[0] for note in notes] == [
        "the forward of FrozenModel",
        "the steps of ToldByHand",
    ]
    assert capsys.readouterr().err.count("trainscope cannot record") == 2
    assert hooks.not_seen() == notes


class Shell:
    """Passes every attribute on, as some wrappers of optimizers do."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_a_shell_is_watched_through_what_it_passes_on_to() -> None:
    recorder, model = WrittenRanges(), nn.Linear(2, 1)
    shell = Shell(torch.optim.SGD(model.parameters(), lr=0.1))
    hooks = Hooks(recorder)
    hooks.add_optimizer(shell)
    model(torch.ones(1, 2)).sum().backward()
    shell.step()  # type: ignore[operator]
    hooks.remove()
    assert recorder.text == "backward() optimizer()"
    assert recorder.optimizer_steps == 1


@pytest.mark.parametrize("given", [5, None, [], torch.optim.SGD, "SGD"])
def test_what_is_no_optimizer_is_refused(given: object) -> None:
    hooks = Hooks(WrittenRanges())
    with pytest.raises(ConfigError, match="optimizer must"):
        hooks.add_optimizer(given)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_records_nothing() -> None:
    model, recorder = nn.Linear(2, 1), WrittenRanges()
    hooks = Hooks(recorder)
    hooks.add_model(model)
    child = os.fork()
    if child == 0:
        try:
            with torch.no_grad():
                model(torch.ones(1, 2))
        finally:
            os._exit(len(recorder.written))
    _, status = os.waitpid(child, 0)
    model(torch.ones(1, 2))
    hooks.remove()
    assert os.waitstatus_to_exitcode(status) == 0
    assert recorder.text == "forward()"
