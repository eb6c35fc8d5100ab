"""Where a tensor stands that no operator was seen making."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from trainscope.sync.dry.marks import Marks, Place


class Holder(Tensor):
    """Holds other tensors, as a DTensor holds its part of the whole."""

    @staticmethod
    def __new__(cls, *held: Tensor) -> Holder:
        made = Tensor._make_wrapper_subclass(cls, held[0].shape)  # type: ignore[attr-defined]
        for number, each in enumerate(held):
            setattr(made, f"held_{number}", each)
        return made

    @classmethod
    def __torch_dispatch__(cls, *called: object) -> object:
        raise AssertionError("nothing is to be computed with it")

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return [name for name in vars(self) if name.startswith("held_")], None


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ((Place.DEVICE,), Place.DEVICE),
        ((Place.HOST, Place.DEVICE), Place.DEVICE),
        ((Place.HOST, Place.MODEL), Place.MODEL),
        ((Place.HOST,), Place.HOST),
    ],
)
def test_one_that_holds_others_is_where_they_are(places: tuple[Place, ...], found: Place) -> None:
    marks = Marks()
    held = [torch.ones(2) for _ in places]
    for tensor, place in zip(held, places, strict=True):
        marks.put(tensor, place)
    assert marks.raw(Holder(*held)) is found


def test_a_leaf_that_trains_is_the_models_and_another_the_hosts() -> None:
    marks = Marks()
    assert marks.raw(Parameter(torch.ones(2))) is Place.MODEL
    assert marks.raw(torch.ones(2)) is Place.HOST
