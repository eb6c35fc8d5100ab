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
            kinds = _index_waits(key, watch, watch.marks.on_device(self))
            for kind in kinds:
                watch.report(kind, frame)
            stored = value[0] if value else None
            one = value and (not isinstance(stored, Tensor) or _is_one_on_host(stored, watch))
            return bool(kinds or one)

        counted = int(watch.safely(judge, False))
        watch.here.indexing += counted
        try:
            return original(self, key, *value)
        finally:
            watch.here.indexing -= counted

    return subscript


def _index_waits(key: Any, watch: Watch, into_device: bool) -> list[str]:
    """Return the kinds of what a subscript waits for before anything is read or stored.

    `into_device`: the tensor that is indexed stands for a GPU one.
    """
    kinds: list[str] = []
    on_device = watch.marks.on_device
    for part in key if isinstance(key, tuple) else (key,):
        is_mask = getattr(part, "dtype", None) in (torch.bool, torch.uint8, np.bool_)
        if isinstance(part, Tensor) and part.dim() == 0:
            # read to the host: as the number it is, or to see whether to take anything at all
            if on_device(part):
                kinds.append("nonzero" if is_mask else "index")
        elif not into_device or is_mask:
            continue  # a mask on the host becomes indices there, copied without a wait
        elif isinstance(part, (list, tuple, range)):
            kinds.append("h2d-list")
        elif isinstance(part, np.ndarray) or (isinstance(part, Tensor) and not on_device(part)):
            kinds.append("h2d-pageable")
    return kinds


def _is_one_on_host(value: Tensor, watch: Watch) -> bool:
    return value.dim() == 0 and not watch.marks.on_device(value)
