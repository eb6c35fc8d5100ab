"""Operators called as ``torch.ops.library.name(…)``, such as torchvision's ``nms``.

Such a call goes past the place where torch hands warnings of C++ on to Python: a wait in it would
be printed on standard error, each time, and the armed filter would not hear of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import _disable_current_modes

from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["Active", "install"]

__tracebackhide__ = NOT_FOR_USERS

_CLASSES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_apply_ = torch._C.TensorBase.apply_
_modes = torch._C._len_torch_function_stack


class Active(Protocol):
    """Who wants to hear."""

    active: bool
    """False once stopped: a wrapper that someone else still holds then only passes through."""


def install(patches: Patches, listener: Active) -> None:
    """Let each such call run inside one of torch's Python functions, which hands warnings on."""
    with _disable_current_modes():  # a fake one would not call back
        one = torch.zeros(1, device="cpu")
    for kind in _CLASSES:
        patches.replace(kind, "__call__", _heard(kind.__call__, listener, one))


def _heard(original: Callable[..., Any], listener: Active, one: torch.Tensor) -> Callable[..., Any]:
    @functools.wraps(original)
    def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not listener.active:
            return original(self, *args, **kwargs)
        result: list[Any] = []

        def run(_value: float) -> float:
            result.append(original(self, *args, **kwargs))
            return 0.0

        # of the functions that call back, this one asks nobody else and costs least: 0.7 µs
        if not _modes():
            _apply_(one, run)
        elif torch._C._is_torch_function_enabled():
            _call_untold(one, run)
        else:
            run(0.0)
        return result[0]

    return __call__


def _call_untold(one: torch.Tensor, run: Callable[[float], float]) -> None:
    """Call `run` back, a mode hearing of what it calls but not of the function that calls back.

    A default device is such a mode.
    """

    def told(value: float) -> float:
        with torch._C._EnableTorchFunction():
            return run(value)

    with torch._C.DisableTorchFunction():
        _apply_(one, told)
