"""Values of a call that looks like the one before, and is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from metrics_rig import Rig, logged

from trainscope.errors import MetricError
from trainscope.metrics.split import Splitter

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


class Subclass(torch.Tensor):
    """A tensor of the user's own class."""


def sorted_out(splitter: Splitter, values: dict[str, Any]) -> tuple[Any, ...]:
    """Names, numbers, and for each group its device type, dtype and names."""
    layout, numbers, columns = splitter.split(values)
    for group, tensors in zip(layout.groups, columns, strict=True):
        named = dict(zip(group.names, tensors, strict=True))
        assert {name: float(tensor) for name, tensor in named.items()} == {
            name: float(values[name]) for name in group.names
        }
    kinds = [(g.source.device.type, g.source.dtype, list(g.names)) for g in layout.groups]
    return layout.names, list(numbers), kinds


@pytest.mark.parametrize("device", DEVICES)
def test_each_call_is_sorted_by_what_it_holds_whatever_the_one_before_held(device: str) -> None:
    one, two = torch.tensor(1.0, device=device), torch.tensor(2.0, device=device)
    splitter = Splitter()
    usual = {"a": one, "b": two, "n": 3}
    first = (("a", "b", "n"), [3], [(device, torch.float32, ["a", "b"])])
    for _ in range(3):
        assert sorted_out(splitter, usual) == first
    assert sorted_out(splitter, {"a": one, "b": 2.0, "n": two}) == (
        ("a", "b", "n"),
        [2.0],
        [(device, torch.float32, ["a", "n"])],
    )
    assert sorted_out(splitter, usual) == first
    assert sorted_out(splitter, {"n": 3, "b": two, "a": one}) == (
        ("n", "b", "a"),
        [3],
        [(device, torch.float32, ["b", "a"])],
    )
    assert sorted_out(splitter, usual) == first
    assert sorted_out(splitter, {"a": one, "b": two.long(), "n": True}) == (
        ("a", "b", "n"),
        [1],
        [(device, torch.float32, ["a"]), (device, torch.int64, ["b"])],
    )
    assert sorted_out(splitter, usual) == first
    assert sorted_out(splitter, {"a": one.reshape(1), "b": two.reshape(1, 1), "n": 3}) == first
    assert sorted_out(splitter, {"a": one.as_subclass(Subclass), "b": two, "n": 3}) == first
    assert sorted_out(splitter, {"a": 1.0, "b": 2.0, "n": 3}) == (
        ("a", "b", "n"),
        [1.0, 2.0, 3],
        [],
    )
    assert sorted_out(splitter, usual) == first
    with pytest.raises(MetricError, match="'n' is a str"):
        splitter.split({"a": one, "b": two, "n": "three"})
    with pytest.raises(MetricError, match="on device meta"):
        splitter.split({"a": one, "b": two.to("meta"), "n": 3})
    assert sorted_out(splitter, usual) == first


@pytest.mark.gpu
def test_a_tensor_elsewhere_is_not_taken_for_one_on_the_gpu() -> None:
    splitter = Splitter()
    there = torch.ones((), device="cuda")
    for _ in range(2):
        splitter.split({"a": there, "b": there})
    _, _, kinds = sorted_out(splitter, {"a": there, "b": torch.ones(())})
    assert kinds == [("cuda", torch.float32, ["a"]), ("cpu", torch.float32, ["b"])]


@pytest.mark.parametrize("device", DEVICES)
def test_a_tensor_of_another_shape_than_in_the_call_before(device: str) -> None:
    """Of one element it arrives, of several it is refused by name, and the next call goes on."""

    def values(*shape: int) -> dict[str, Any]:
        return {"a": torch.full((), 0.5, device=device), "b": torch.ones(shape, device=device)}

    whole = {"a": 0.5, "b": 1.0}
    with Rig() as rig:
        for step, shape in enumerate([(), (1,), (1, 1), (), (1,)]):
            rig.logger.log(step, values(*shape))
        for shape in [(2,), (0,)]:
            with pytest.raises(MetricError, match=r"'b' is a tensor of shape \[[02]\]"):
                rig.logger.log(5, values(*shape))
        rig.logger.log(6, values())
        assert rig.close() == [(step, whole) for step in (0, 1, 2, 3, 4, 6)]


def test_calls_in_turn_are_each_known_again() -> None:
    splitter = Splitter()
    train, test = {"loss": torch.ones(()), "lr": 0.1}, {"test/loss": torch.ones(())}
    known = [splitter.split(values)[0] for values in (train, test)]
    assert [splitter.split(values)[0] for values in (train, test, train, test)] == known * 2


def test_names_that_change_with_every_call_do_not_pile_up() -> None:
    splitter = Splitter()
    for step in range(1000):
        splitter.split({f"loss/{step}": 1.0})
    assert len(splitter._layouts) <= 64


@pytest.mark.parametrize("kinds", ["nnttnn", "tntntn", "ttnnss", "snsnst", "ssstts", "t", "s", "n"])
def test_every_value_arrives_under_its_name_wherever_it_stands(kinds: str) -> None:
    """Numbers, tensors and tensors of another source, in any order; twice, so known the second."""
    make = {"n": float, "t": lambda i: torch.tensor(float(i)), "s": torch.tensor}
    call = {f"m{i}": make[kind](i) for i, kind in enumerate(kinds)}
    rows = logged(call, call)
    expected = [(f"m{i}", i if kind == "s" else float(i)) for i, kind in enumerate(kinds)]
    assert [list(values.items()) for _, values in rows] == [expected, expected]
