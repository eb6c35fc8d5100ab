"""Timed wrappers around the few Python entry points that can wait for the GPU."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from numbers import Number
from time import perf_counter_ns
from types import FrameType
from typing import Any, Protocol

import torch

from trainscope.sync.copies import (
    MEASURED_BYTES,
    asks_non_blocking,
    copy_kind,
    on_gpu,
    target_type,
)
from trainscope.sync.methods import replace_method
from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["READS", "Listener", "here", "install"]

__tracebackhide__ = NOT_FOR_USERS

READS = {
    "item": "item",
    "tolist": "tolist",
    "cpu": "cpu",
    "numpy": "numpy",
    "__bool__": "bool",
    "__int__": "int",
    "__float__": "float",
    "__index__": "index",
    "__repr__": "repr",
    "__format__": "format",
}
"""Methods of `torch.Tensor` that read a tensor to the host, with the kind of each."""
_MANY_READS = frozenset({"repr", "format"})

_WAITS = (
    ("_cuda_synchronize", "synchronize"),
    ("_cuda_emptyCache", "empty_cache"),
    ("_accelerator_synchronizeDevice", "synchronize"),
    ("_accelerator_emptyCache", "empty_cache"),
)
"""Functions of `torch._C` below those of `torch.cuda`: seen however the user imported them."""


class _Here(threading.local):
    """What this thread is in: a call inside a wrapper belongs to the wrapper's event."""

    inside = False
    announced = False
    """The debug mode has announced a wait since the wrapper was entered."""


here = _Here()


class Listener(Protocol):
    """What the wrappers ask and tell."""

    active: bool
    """False once stopped: a wrapper that someone else still holds then only passes through."""

    def announces(self) -> bool:
        """Return whether the debug mode now announces each wait that it can see."""
        ...

    def event(self, kind: str, frame: FrameType, blocked_ns: int, internal: bool) -> None:
        """Take one wait; raises `SyncError` where it is forbidden."""
        ...

    def h2d_range(self) -> AbstractContextManager[object] | None:
        """Return the range to enter around a copy to the device, or None."""
        ...


def _passes(listener: Listener) -> bool:
    """Whether a call is not to be looked at: a compiler's, one inside another, or the last ones."""
    return here.inside or not listener.active or torch.compiler.is_compiling()


def install(patches: Patches, listener: Listener) -> None:
    """Put a wrapper around each entry point, through `patches`, reporting to `listener`."""
    for name, kind in READS.items():
        replace_method(patches, name, partial(_read, kind, listener=listener))
    replace_method(patches, "to", partial(_to, listener=listener))
    replace_method(patches, "cuda", partial(_cuda, listener=listener))
    replace_method(patches, "copy_", partial(_copy, listener=listener))
    for owner, kind in ((torch.cuda.Stream, "stream"), (torch.cuda.Event, "event")):
        patches.replace(owner, "synchronize", _wait(kind, owner.synchronize, listener))
    for name, kind in _WAITS:
        original = getattr(torch._C, name, None)  # absent in a build without CUDA
        if original is not None:
            patches.replace(torch._C, name, _wait(kind, original, listener))


def _read(
    kind: str, original: Callable[..., Any], listener: Listener, *, above: int = 1
) -> Callable[..., Any]:
    """Return what times ``original`` of a GPU tensor; ``above`` is how far out the caller is."""
    internal = kind in _MANY_READS

    @functools.wraps(original)
    def read(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not on_gpu(self) or _passes(listener):
            return original(self, *args, **kwargs)
        here.inside, here.announced = True, False
        start_ns = perf_counter_ns()
        try:
            result = original(self, *args, **kwargs)
            blocked_ns = perf_counter_ns() - start_ns
        finally:
            here.inside = False
        # A fake or an empty tensor is on the device too, and nothing waits for it.
        if here.announced or not listener.announces():
            listener.event(kind, sys._getframe(above), blocked_ns, internal)
        return result

    return read


def _wait(kind: str, original: Callable[..., Any], listener: Listener) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or here.inside or not listener.active:
            return original(*args, **kwargs)
        here.inside = True
        start_ns = perf_counter_ns()
        try:
            result = original(*args, **kwargs)
            blocked_ns = perf_counter_ns() - start_ns
        finally:
            here.inside = False
        listener.event(kind, sys._getframe(1), blocked_ns, False)
        return result

    return wait


def _to(original: Callable[..., Any], listener: Listener) -> Callable[..., Any]:
    @functools.wraps(original)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        target = target_type(args, kwargs)
        if target is None or (target == "cuda") is on_gpu(self) or _passes(listener):
            return original(self, *args, **kwargs)
        non_blocking = asks_non_blocking(args, kwargs)
        call = partial(original, self, *args, **kwargs)
        if target == "cuda":
            return _copied(call, self, None, True, non_blocking, listener)
        return _copied(call, None, self, False, non_blocking, listener)

    return to


def _cuda(original: Callable[..., Any], listener: Listener) -> Callable[..., Any]:
    @functools.wraps(original)
    def cuda(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if on_gpu(self) or _passes(listener):
            return original(self, *args, **kwargs)
        call = partial(original, self, *args, **kwargs)
        return _copied(call, self, None, True, asks_non_blocking(args, kwargs), listener)

    return cuda


def _copy(original: Callable[..., Any], listener: Listener) -> Callable[..., Any]:
    number = _read("h2d-scalar", original, listener, above=2)  # to torch a tensor of the host

    @functools.wraps(original)
    def copy_(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        source = args[0] if args else kwargs.get("src", kwargs.get("other"))
        there = on_gpu(self)
        if not isinstance(source, torch.Tensor):
            copy = number if there and isinstance(source, Number) else original
            return copy(self, *args, **kwargs)
        if on_gpu(source) is there or _passes(listener):
            return original(self, *args, **kwargs)
        non_blocking = asks_non_blocking(args[1:], kwargs)
        call = partial(original, self, *args, **kwargs)
        if there:
            return _copied(call, source, self, True, non_blocking, listener)
        return _copied(call, self, source, False, non_blocking, listener)

    return copy_


def _copied(
    call: Callable[[], Any],
    host: torch.Tensor | None,
    device: torch.Tensor | None,
    to_device: bool,
    non_blocking: bool,
    listener: Listener,
) -> Any:
    """Make the copy; report it when it waited. An operand that is None is the result."""
    entered = listener.h2d_range() if to_device else None
    with nullcontext() if entered is None else entered:
        here.inside, here.announced = True, False
        start_ns = perf_counter_ns()
        try:
            result = call()
            blocked_ns = perf_counter_ns() - start_ns
        finally:
            here.inside = False
        waited = here.announced or not (non_blocking or listener.announces())
        on_host = result if host is None else host
        with torch._C.DisableTorchFunctionSubclass():  # a lazy parameter refuses to tell
            bytes_moved = on_host.nbytes
        if not waited and (
            not non_blocking
            or bytes_moved <= MEASURED_BYTES
            # under a dispatch mode the time is that mode's, and the tensors may be fake
            or torch._C._len_torch_dispatch_stack()
        ):
            return result
        with torch._C.DisableTorchFunctionSubclass():
            pinned = on_host.is_pinned()
        kind = copy_kind(
            to_device=to_device,
            pinned=pinned,
            non_blocking=non_blocking,
            waited=waited,
            bytes_moved=bytes_moved,
            blocked_ns=blocked_ns,
        )
        if kind is not None:
            listener.event(kind, sys._getframe(2), blocked_ns, False)
    return result
