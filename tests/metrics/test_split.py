"""Values of a call that looks like the one before, and is not."""

import pytest
import torch

from trainscope.errors import MetricError
from trainscope.metrics.split import Splitter

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


class Subclass(torch.Tensor):
    """A tensor of the user's own class."""


def sorted_out(splitter: Splitter, values: dict) -> tuple:
    """Names, numbers, and for each group its device type, dtype and names."""
    names, numbers, groups = splitter.split(values)
    assert all(tensor.dim() == 0 for _, _, tensors in groups for tensor in tensors)
    kinds = [(source[0].type, source[1], list(named)) for source, named, _ in groups]
    return names, numbers, kinds


@pytest.mark.parametrize("device", DEVICES)
def test_each_call_is_sorted_by_what_it_holds_whatever_the_one_before_held(device: str) -> None:
    one = torch.ones((), device=device)
    splitter = Splitter()
    usual = {"a": one, "b": one, "n": 3}
    first = (("a", "b", "n"), {"n": 3}, [(device, torch.float32, ["a", "b"])])
    for _ in range(3):
        assert sorted_out(splitter, usual) == first
    assert sorted_out(splitter, {"a": one, "b": 2.0, "n": one}) == (
        ("a", "b", "n"),
        {"b": 2.0},
        [(device, torch.float32, ["a", "n"])],
    )
    assert sorted_out(splitter, usual) == first
    assert sorted_out(splitter, {"n": 3, "b": one, "a": one}) == (
        ("n", "b", "a"),
        {"n": 3},
        [(device, torch.float32, ["b", "a"])],
    )
    assert sorted_out(splitter, usual) == first
    assert sorted_out(splitter, {"a": one, "b": one.long(), "n": True}) == (
        ("a", "b", "n"),
        {"n": 1},
        [(device, torch.float32, ["a"]), (device, torch.int64, ["b"])],
    )
    assert sorted_out(splitter, usual) == first
    assert sorted_out(splitter, {"a": one.reshape(1), "b": one.reshape(1, 1), "n": 3}) == first
    assert sorted_out(splitter, {"a": one.as_subclass(Subclass), "b": one, "n": 3}) == first
    assert sorted_out(splitter, {"a": 1.0, "b": 2.0, "n": 3}) == (
        ("a", "b", "n"),
        {"a": 1.0, "b": 2.0, "n": 3},
        [],
    )
    with pytest.raises(MetricError, match=r"'b' is a tensor of shape \[2\]"):
        splitter.split({"a": one, "b": torch.ones(2, device=device), "n": 3})
    assert sorted_out(splitter, usual) == first


@pytest.mark.gpu
def test_a_tensor_elsewhere_is_not_taken_for_one_on_the_gpu() -> None:
    splitter = Splitter()
    there = torch.ones((), device="cuda")
    for _ in range(2):
        splitter.split({"a": there, "b": there})
    _, _, kinds = sorted_out(splitter, {"a": there, "b": torch.ones(())})
    assert kinds == [("cuda", torch.float32, ["a"]), ("cpu", torch.float32, ["b"])]
    with pytest.raises(MetricError, match="on device meta"):
        splitter.split({"a": there, "b": torch.ones((), device="meta")})
