"""Replaced attributes come back exactly, inherited ones as absent."""

from __future__ import annotations

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
