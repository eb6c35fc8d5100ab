"""Stopping puts back every attribute and mode, whatever happened in between."""

from __future__ import annotations

import pickle
import threading

import torch
from torch.nn import Module
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainscope.sync.dry import DryRun


def _ignore(kind: str, frame: object, *, internal: bool = False) -> None:
    return None


def _namespaces() -> list[dict[str, object]]:
    owners = [
        torch, torch.Tensor, torch.cuda, torch.cuda.nvtx, torch.fft, torch.nn.functional, Module,
        torch._C._nn, torch.UntypedStorage, torch.amp.GradScaler, DataLoader, _BaseDataLoaderIter,
        torch.serialization, torch.accelerator, torch.utils._device.DeviceContext,
    ]  # fmt: skip
    return [dict(vars(owner)) for owner in owners]


def test_every_attribute_is_the_same_object_again() -> None:
    dry_run = DryRun(_ignore)
    dry_run.start()  # the first one has torch import its compiler, which replaces attributes itself
    dry_run.stop()
    before = _namespaces()
    for _ in range(2):
        dry_run.start()
        dry_run.start()
        assert torch.zeros is not before[0]["zeros"]
        dry_run.stop()
        dry_run.stop()
        assert _namespaces() == before
        assert _python_dispatch._get_current_dispatch_mode_stack() == []


def test_what_someone_else_replaced_meanwhile_stays_theirs() -> None:
    original = torch.zeros
    dry_run = DryRun(_ignore)
    dry_run.start()
    ours = torch.zeros

    def theirs(*args: object, **kwargs: object) -> object:
        return ours(*args, **kwargs)

    try:
        torch.zeros = theirs  # type: ignore[assignment]
        dry_run.stop()
        assert torch.zeros is theirs
        assert torch.zeros(2).tolist() == [0.0, 0.0]  # type: ignore[union-attr]
    finally:
        torch.zeros = original


def test_a_method_that_someone_else_replaced_meanwhile_is_said_not_to_be_seen() -> None:
    original = torch.Tensor.tolist
    dry_run = DryRun(_ignore)
    dry_run.start()
    try:
        found = torch.Tensor.tolist
        torch.Tensor.tolist = lambda self: found(self)  # type: ignore[method-assign]
        dry_run.stop()
        assert torch.ones(2).tolist() == [1.0, 1.0]
    finally:
        torch.Tensor.tolist = original  # type: ignore[method-assign]
        del torch.Tensor.tolist
    assert found is torch.Tensor.tolist
    assert [said for said in dry_run.cannot_see if "replaced" in said] == [
        "dry run: waits in methods that the program replaced after us: Tensor.tolist"
    ]


def test_a_mode_entered_above_ours_stays_when_ours_leaves() -> None:
    class Theirs(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    dry_run = DryRun(_ignore)
    dry_run.start()
    with Theirs() as theirs:
        dry_run.stop()
        assert _python_dispatch._get_current_dispatch_mode_stack() == [theirs]
        torch.ones(2)
    assert _python_dispatch._get_current_dispatch_mode_stack() == []
    assert seen == ["aten.ones.default"]


def test_stopping_on_another_thread_leaves_a_mode_that_does_nothing() -> None:
    seen: list[str] = []

    def observe(kind: str, frame: object, *, internal: bool = False) -> None:
        seen.append(kind)

    dry_run = DryRun(observe)

    def run() -> None:
        dry_run.start()
        x = torch.ones(3, device="cuda")
        stopped.set()
        resume.wait(10)
        x.nonzero()

    stopped, resume = threading.Event(), threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    assert stopped.wait(10)
    dry_run.stop()
    resume.set()
    thread.join(10)
    assert seen == []


def test_tensors_and_modules_pickle_during_and_after() -> None:
    dry_run = DryRun(_ignore)
    dry_run.start()
    try:
        net = torch.nn.Linear(2, 2).to("cuda")
        during = pickle.dumps(net)
    finally:
        dry_run.stop()
    for data in (during, pickle.dumps(net)):
        assert torch.equal(pickle.loads(data).weight, net.weight)


def test_marks_of_an_earlier_dry_run_are_forgotten() -> None:
    seen: list[str] = []

    def observe(kind: str, frame: object, *, internal: bool = False) -> None:
        seen.append(kind)

    first = DryRun(_ignore)
    first.start()
    x = torch.ones(3, device="cuda")
    first.stop()
    second = DryRun(observe)
    second.start()
    try:
        x.sum().item()
    finally:
        second.stop()
    assert seen == []
