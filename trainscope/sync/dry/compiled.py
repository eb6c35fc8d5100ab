"""Compiled functions under torch 2.9, whose guards fail while any dispatch mode is entered.

Each call would then compile anew, and at torch's limit of recompilations a ``fullgraph`` function
raises. So the mode is off this thread while the compiler watches its frames, and on again for what
runs as it is. Later torch leaves a mode that ignores compile internals out of its guards.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from trainscope.sync.dry.watch import Watch
from trainscope.sync.patches import Patches

__all__ = ["guards_see_modes", "install"]

_SWITCH = "_maybe_set_eval_frame"


class _Here(threading.local):
    off = False
    """The mode was taken off this thread's stack, and is to come back."""


def guards_see_modes() -> bool:
    """Whether this torch lets a dispatch mode fail the guards of compiled functions."""
    return not hasattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals")


def install(watch: Watch, mode: TorchDispatchMode, patches: Patches) -> None:
    """Take the mode off where the compiler is switched on, and bring it back where it is off."""
    frames: Any = importlib.import_module("torch._dynamo.eval_frame")
    original: Callable[[Any], Any] | None = getattr(frames, _SWITCH, None)
    if original is None or not guards_see_modes():
        return
    here = _Here()

    def switch(callback: Any) -> Any:
        if callback is None:
            if here.off:
                here.off = False
                if watch.on:
                    mode.__enter__()
        elif watch.on and not here.off:
            stack = _python_dispatch._get_current_dispatch_mode_stack()
            if stack and stack[-1] is mode:  # below another mode it would come back above it
                mode.__exit__(None, None, None)
                here.off = True
        return original(callback)

    patches.replace(frames, _SWITCH, switch)
