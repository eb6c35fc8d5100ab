"""Operators called as ``torch.ops.library.name(…)``, such as torchvision's ``nms``.

Such a call goes past the place where torch hands warnings of C++ on to Python: a wait in it would
be printed on standard error, each time, and the armed filter would not hear of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch

from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["Active", "install"]

__tracebackhide__ = NOT_FOR_USERS

_CLASSES = ("OpOverload", "OpOverloadPacket")
_apply_ = torch._C.TensorBase.apply_
_modes = torch._C._len_torch_function_stack
_one = torch.zeros(1, device="cpu")


class Active(Protocol):
    """Who wants to hear."""

    active: bool
    """False once stopped: a wrapper that someone else still holds then only passes through."""


def install(patches: Patches, listener: Active) -> None:
    """Let each such call run inside one of torch's Python functions, which hands warnings on."""
    for name in _CLASSES:
        kind = getattr(torch._ops, name, None)
        if kind is not None:
            patches.replace(kind, "__call__", _heard(kind.__call__, listener))


def _heard(original: Callable[..., Any], listener: Active) -> Callable[..., Any]:
    @functools.wraps(original)
    def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        # a mode would be told of a function that the program has not called
        if torch.compiler.is_compiling() or not listener.active or _modes():
            return original(self, *args, **kwargs)
        result: list[Any] = []

        def run(_value: float) -> float:
            result.append(original(self, *args, **kwargs))
            return 0.0

        # of the functions that call back, this one asks nobody else and costs least: 0.7 µs
        _apply_(_one, run)
        return result[0]

    return __call__
