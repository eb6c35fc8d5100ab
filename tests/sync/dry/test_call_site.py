"""A device is the host when the call says so; with and without instruction positions."""

from __future__ import annotations

import sys
import types
from types import FrameType

import pytest

from trainscope.sync.dry import call_site

seen: list[tuple[bool, bool]] = []


def probe(*args: object, **kwargs: object) -> object:
    frame: FrameType = sys._getframe(1)
    seen.append(
        (call_site.names_cpu(frame, "probe"), call_site.is_variable(frame, "probe", "pin_memory"))
    )
    return args


@pytest.mark.parametrize("positions", [True, False], ids=["positions", "lines"])
def test_what_the_call_says(positions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if positions and sys.version_info < (3, 11):
        pytest.skip("code objects carry no positions before Python 3.11")
    if not positions:
        monkeypatch.setattr(call_site, "_position", lambda code, offset: None)
    device, cpu_device, torch, ready = "cpu", "cpu", __import__("torch"), False
    seen.clear()
    probe("cpu")
    probe(device)
    probe(3, device="cpu:0")
    probe(torch.device("cpu"))
    probe(torch.device(device))
    probe("cuda" if ready else "cpu")
    probe(cpu_device)
    probe(
        device="cpu",
    )
    probe(pin_memory=True)
    probe(pin_memory=ready)
    probe(**{"pin_memory": ready})
    assert seen == [
        (True, False), (False, False), (True, False), (True, False), (False, False),
        (False, False), (True, False), (True, False), (False, False), (False, True),
        (False, False),
    ]  # fmt: skip


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs instruction positions")
def test_two_calls_on_one_line_are_told_apart() -> None:
    device = "cpu"
    seen.clear()
    probe("cpu"), probe(device)
    probe(device), probe("cpu")
    assert [literal for literal, _ in seen] == [True, False, False, True]


def test_a_script_with_no_source_names_nothing() -> None:
    seen.clear()
    exec(compile("probe('cpu')", "<no such file>", "exec"), {"probe": probe})
    assert seen == [(False, False)]


def hand_on(*args: object, **how: object) -> object:
    return probe(*args, **how)


def keep(**how: object) -> object:
    return probe(**{"device": how["device"]})


@pytest.mark.parametrize("positions", [True, False], ids=["positions", "lines"])
def test_what_a_function_hands_on_its_caller_says(
    positions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if positions and sys.version_info < (3, 11):
        pytest.skip("code objects carry no positions before Python 3.11")
    if not positions:
        monkeypatch.setattr(call_site, "_position", lambda code, offset: None)
    device, ready = "cpu", False
    seen.clear()
    hand_on(1, device="cpu")
    hand_on(1, device=device)
    hand_on(1, pin_memory=ready)
    hand_on(1, pin_memory=False)
    keep(device=device)
    assert seen == [
        (True, False), (False, False), (False, True), (False, False), (False, False),
    ]  # fmt: skip


def test_a_condition_on_there_being_a_gpu() -> None:
    device, use_cuda, wanted = types.SimpleNamespace(type="cpu"), False, False
    said: list[bool] = []

    def move(**how: object) -> None:
        said.append(call_site.says_cuda(sys._getframe(1), "move", "non_blocking"))

    move(non_blocking=device.type == "cuda")
    move(non_blocking=use_cuda and not wanted)
    move(non_blocking=device.type not in {"cpu", "mps"})
    move(non_blocking=device.type != "cpu")
    move(non_blocking=device.type == "cpu")
    move(non_blocking=wanted)
    move(non_blocking=False)
    move(cuda=False)
    assert said == [True, True, True, True, False, False, False, False]


def test_whose_attribute_is_given() -> None:
    source, holder = types.SimpleNamespace(pin_memory=True), types.SimpleNamespace()
    holder.source = source
    owners: list[object] = []

    def make(**how: object) -> None:
        owners.append(call_site.owner_of(sys._getframe(1), "make", "pin_memory"))

    make(pin_memory=source.pin_memory)
    make(pin_memory=holder.source.pin_memory)
    make(pin_memory=not source.pin_memory)
    make(other=source.pin_memory)
    assert owners == [source, source, None, None]
