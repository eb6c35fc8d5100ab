"""Python calls that read values of a tensor: ``item``, ``bool``, ``tolist``, ``print`` …"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainscope.sync.dry.watch import Watch
from trainscope.sync.patches import Patches

__all__ = ["install"]

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
    """Replace the reading methods of Tensor, and subscripts, for the length of a dry run."""
    for name, kind in _READS.items():
        original = getattr(torch.Tensor, name, None)
        if original is not None:
            patches.replace(torch.Tensor, name, _reader(watch, original, kind))
    for name in ("__getitem__", "__setitem__"):
        original = getattr(torch.Tensor, name)
        patches.replace(torch.Tensor, name, _subscript(watch, original))


def _reader(watch: Watch, original: Callable[..., Any], kind: str) -> Callable[..., Any]:
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


def _subscript(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def subscript(self: Tensor, key: Any, *value: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(self, key, *value)
        if not watch.live:
            return original(self, key, *value)
        frame = sys._getframe(1)

        def judge() -> bool:
            if not watch.marks.on_device(self):
                return False
            lists, arrays, scalars = _parts(key, watch)
            if lists:
                watch.report("h2d-list", frame, count=lists)
            if arrays:
                watch.report("h2d-pageable", frame, count=arrays)
            number = bool(value) and not isinstance(value[0], Tensor)
            return bool(lists or arrays or scalars or number)

        counted = int(watch.safely(judge, False))
        watch.here.indexing += counted
        try:
            return original(self, key, *value)
        finally:
            watch.here.indexing -= counted

    return subscript


def _parts(key: Any, watch: Watch) -> tuple[int, int, int]:
    """Return how many lists, arrays and one-number GPU tensors `key` has as indices.

    A one-number GPU tensor is turned into a gather there and read by nobody.
    """
    lists = arrays = scalars = 0
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, (list, tuple, range)):
            lists += 1
        elif isinstance(part, np.ndarray):
            arrays += int(part.dtype != np.bool_)
        elif isinstance(part, Tensor):
            scalars += int(part.dim() == 0 and watch.marks.on_device(part))
    return lists, arrays, scalars
