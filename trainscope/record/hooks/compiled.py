"""Calls of what ``torch.compile(model)`` returned, whether it was made before ``wrap`` or after.

Such an object holds the bound ``__call__`` the model had when it was compiled, or traces straight
into ``forward``, so the patch on the model's class may never be asked.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from trainscope.record.hooks.methods import CALLS, Entry
from trainscope.record.hooks.patch import HeldPatch, hide_from_dynamo

__all__ = ["COMPILED", "original"]


def original(model: torch.nn.Module) -> torch.nn.Module:
    """The module the user wrote, when ``model`` is a compiled one."""
    while (inner := _child(model, "_orig_mod")) is not None:
        model = inner
    return model


def _child(model: torch.nn.Module, name: str) -> torch.nn.Module | None:
    children = vars(model).get("_modules", ())  # a ScriptModule's is no dict and has no `get`
    if name not in children:
        return None
    return children[name]  # type: ignore[call-overload]


def _entry(model: torch.nn.Module) -> Entry | None:
    """The entry of the compiled module, or of what a DDP-like shell around it holds."""
    found: torch.nn.Module | None = original(model)
    while found is not None:
        entry = CALLS.entries.get(id(found))
        if entry is not None:
            return entry
        found = _child(found, "module")
    return None


class CompiledCalls:
    """The patch on torch's class of compiled modules, held once for all who need it."""

    def __init__(self) -> None:
        self._holders: set[object] = set()
        self._patch = HeldPatch("OptimizedModule.__call__")

    def hold(self, holder: object) -> None:
        """Patch for ``holder``, if nobody did yet."""
        from torch._dynamo.eval_frame import OptimizedModule

        self._holders.add(holder)
        self._patch.put(OptimizedModule, "__call__", lambda: _wrapped(vars(OptimizedModule)))

    def release(self, holder: object) -> tuple[str, ...]:
        """Unpatch when the last holder is gone; in words what must stay."""
        self._holders.discard(holder)
        return () if self._holders else self._patch.take_out()


def _wrapped(namespace: Any) -> Any:
    own = namespace.get("__call__", torch.nn.Module.__call__)

    def call_compiled(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return own(self, *args, **kwargs)
        entry = _entry(self)
        watcher = None if entry is None else entry.watcher
        token = None if watcher is None else watcher.begin(self, args)
        if watcher is None or token is None:
            return own(self, *args, **kwargs)
        try:
            return own(self, *args, **kwargs)
        finally:
            watcher.end(token)

    hide_from_dynamo(call_compiled)
    return functools.wraps(own)(call_compiled)


COMPILED = CompiledCalls()
