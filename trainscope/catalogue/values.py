"""What to do about a wait for values that the program reads, by what it does with them."""

from __future__ import annotations

import re

from trainscope.catalogue.libraries import of_library
from trainscope.catalogue.reading import (
    only_logs,
    picks_greatest,
    slices_by_value,
    subscripts,
    use_of,
)

__all__ = ["USED", "VALUE_KINDS", "of_value"]

_PRINTS = frozenset({"repr", "format"})
VALUE_KINDS = _PRINTS | {"item", "bool", "int", "float", "index", "tolist", "numpy", "cpu", "d2h"}
"""The kinds of syncs by which a program reads values."""

_ON_LOG_STEPS = "read it only on the steps that use it"
USED = {
    "log": "keep it on the GPU: scope.log(name=tensor) writes the value later, without a wait",
    "total": "add on the GPU (total += value.detach()) and read the total once, when it is shown",
    "collect": "collect value.detach() and read all at the end: torch.stack(values).tolist()",
    "needed": (
        "the program goes on with this value, so it has to be read: read it as late as it can be, "
        "all values in one copy, or for several environments or samples in one batch"
    ),
    "returned": (
        "return the tensor, and read it where its number is needed: a loss to be shown can wait, "
        "an action for an environment has to be read"
    ),
    "nonfinite": "scope.log names a non-finite value and its step; torch.where skips it on the GPU",
    "assert": "torch._assert_async tests it on the GPU without a wait; or test it every N steps",
    "branch": "torch.where chooses on the GPU; where Python must branch, test it every N steps",
    "other": f"keep the value on the GPU, and {_ON_LOG_STEPS}; several values: one .tolist()",
}
_DECIDES = frozenset({"assert", "branch", "nonfinite"})
_OTHER_BY_KIND = {
    **dict.fromkeys(
        ("cpu", "d2h", "numpy"),
        "copy into a pinned tensor with non_blocking=True, and read it after an event",
    ),
    # one read of all values already
    "tolist": "keep the values on the GPU, and read them only on the steps that use them",
}
"""Where the text of the line does not show the use."""
_INDEX = "index with x.index_select or gather, whose index may stay on the GPU"
_SIZE = (
    "a size or the end of a slice is a number of the CPU: keep a copy of it there, such as the "
    "lengths before they were moved, or work with all values and a mask"
)
_CLAMP = "x.clamp(min=number), or torch.maximum(x, y), chooses on the GPU"
_EVALUATED = "add up on the GPU and read the result once, after the evaluation"
_IN_HOOK = f"in a backward hook: collect on the GPU and {_ON_LOG_STEPS}, after backward"
_ACTION = re.compile(r"\bactions?\b")
"""What an agent reads it gives to its environment."""


def of_value(kind: str, source: str, phase: str | None, during: str, library: str | None) -> str:
    """Return what to do about a read of `kind`; `library` is the one that makes it, if any."""
    use = use_of(source)
    # the line calls the library, and reads nothing by itself, unless all that it does is to log
    if library is not None and (use != "log" or not only_logs(source)):
        return of_library("read", library)
    if use == "needed" or (use == "other" and _ACTION.search(source)):
        return USED["needed"]
    if kind == "index":
        return _INDEX if subscripts(source) and not slices_by_value(source) else _SIZE
    if use == "other" and kind == "bool":
        if picks_greatest(source):
            return _CLAMP
        use = "branch"
    if during == "evaluation" and use != "log" and use not in _DECIDES:
        return _EVALUATED
    if kind in _PRINTS:
        return USED["log"]
    # what a hook copies to the host is there to be off the GPU, as gradients of a CPU optimizer
    if use == "other" and phase == "backward" and ".copy_(" not in source:
        return _IN_HOOK
    if use == "other" and kind in _OTHER_BY_KIND:
        return _OTHER_BY_KIND[kind]
    return USED[use]
