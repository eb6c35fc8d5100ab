"""One attribute of a class or a module replaced, and put back exactly as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["HeldPatch", "Patch", "hide_from_dynamo", "stays_beneath"]

_ABSENT = object()


class Patch:
    """``replacement`` stands at ``owner.name`` until ``remove``.

    An attribute that ``owner`` inherited is deleted again, not copied down.
    """

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self.owner = owner
        self.name = name
        self.replacement = replacement
        self._before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, replacement)

    @property
    def on_top(self) -> bool:
        """Whether nobody has put something else in its place since."""
        return vars(self.owner).get(self.name, _ABSENT) is self.replacement

    def remove(self) -> bool:
        """Put back what was there; False, changing nothing, when someone replaced ours since.

        Then whoever did so still calls ours, which must pass straight through from here on.
        """
        if not self.on_top:
            return False
        if self._before is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._before)
        return True


class HeldPatch:
    """One patch for all who need it: put in for the first of them, taken out after the last."""

    __slots__ = ("_patch", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        """What is patched, in words."""
        self._patch: Patch | None = None

    def put(self, owner: Any, name: str, wrapper: Callable[[], Any]) -> None:
        """Have what ``wrapper`` makes stand at ``owner.name``, unless one of ours does."""
        if self._patch is None or not self._patch.on_top:
            self._patch = Patch(owner, name, wrapper())

    def take_out(self) -> tuple[str, ...]:
        """Put back what was there, if anything was put in; in words what must stay."""
        if self._patch is None:
            return ()
        removed = self._patch.remove()
        self._patch = None
        return () if removed else (stays_beneath(self._what),)


def hide_from_dynamo(*functions: Any) -> None:
    """Let torch.compile run ``functions`` as plain Python and compile what they call.

    It is what torch does with the frames of ``Module.__call__``. If ours were compiled as the
    outermost frame, all classes would share its recompile limit, and forward hooks that today
    run outside the compiled region would be traced into it. When a larger compiled function
    inlines ours, the early ``is_dynamo_compiling`` return counts instead.

    This loads ``torch._dynamo``, which creating any optimizer does as well.
    """
    import torch._dynamo.eval_frame

    skip_code = getattr(torch._dynamo.eval_frame, "skip_code", None)
    if skip_code is not None:
        for function in functions:
            skip_code(function.__code__)


def stays_beneath(what: str) -> str:
    """The sentence for a patch that other code has wrapped since."""
    return (
        f"{what} was replaced by other code after trainscope wrapped it: "
        "ours stays beneath it and passes straight through"
    )
