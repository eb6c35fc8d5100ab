"""Replaced attributes come back exactly, inherited ones as absent."""

from __future__ import annotations

import itertools

import pytest

from trainscope.sync.patches import Patches


class Base:
    def inherited(self) -> str:
        return "base"


class Owner(Base):
    def own(self) -> str:
        return "own"


def test_undo_restores_own_and_inherited() -> None:
    before = dict(vars(Owner))
    patches = Patches()
    for name in ("own", "inherited"):
        patches.replace(Owner, name, lambda self: "ours")
    assert (Owner().own(), Owner().inherited()) == ("ours", "ours")
    assert patches.undo() == ()
    assert dict(vars(Owner)) == before
    assert (Owner().own(), Owner().inherited()) == ("own", "base")


def test_what_someone_put_over_ours_is_left_and_named() -> None:
    class Mine(Owner):
        pass

    patches = Patches()
    patches.replace(Mine, "own", lambda self: "ours")
    ours = Mine.own
    Mine.own = lambda self: "theirs over " + ours(self)  # type: ignore[method-assign]
    assert patches.undo() == ("Mine.own",)
    assert Mine().own() == "theirs over ours"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_layers_of_ours_come_off_in_any_order(order: tuple[int, ...]) -> None:
    class Mine(Owner):
        def mine(self) -> str:
            return "mine"

    before = dict(vars(Mine))
    layers = [Patches() for _ in order]
    for layer in layers:
        for name in ("own", "mine"):
            layer.replace(Mine, name, lambda self: "ours")
    for number in order:
        assert layers[number].undo() == ()
    assert dict(vars(Mine)) == before
    assert (Mine().own(), Mine().mine()) == ("own", "mine")
