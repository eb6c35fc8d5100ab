"""Python calls that read values of a tensor: ``item``, ``bool``, ``tolist``, ``print`` …"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainscope.sync.dry.watch import Watch
from trainscope.sync.methods import replace_method
from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["install"]

__tracebackhide__ = NOT_FOR_USERS

_READS = {
    "item": "item",
    "tolist": "tolist",
    "numpy": "numpy",
    "__bool__": "bool",
    "__int__": "int",
    "__float__": "float",
    "__complex__": "item",
    "__index__": "index",
    "__repr__": "repr",
    "__format__": "format",
}
_MANY_READS = frozenset({"repr", "format"})


def install(watch: Watch, patches: Patches) -> None:
    """Replace the reading methods of Tensor for the length of a dry run.

    Never ``__getitem__``: a Python one makes every tensor a sequence to C, for good, and
    ``torch.tensor([loss])`` then fails; `mode` sees what a subscript waits for.
    """
    for name, kind in _READS.items():
        if hasattr(torch.Tensor, name):
            replace_method(patches, name, partial(_reader, watch, kind))


def _reader(watch: Watch, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    internal = kind in _MANY_READS

    @functools.wraps(original)
    def read(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(self, *args, **kwargs)
        if not watch.live:
            return original(self, *args, **kwargs)
        frame = sys._getframe(1)
        watch.safely(lambda: watch.reading(self, kind, frame, internal=internal), None)
        watch.here.quiet += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            watch.here.quiet -= 1

    return read
