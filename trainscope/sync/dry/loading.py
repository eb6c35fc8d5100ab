"""Calls of torch's own Python code that mean something else on a GPU: loaders, scaler, one_hot."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.nn import Module
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainscope.sync.dry.call_site import is_variable, owner_of
from trainscope.sync.dry.marks import Place
from trainscope.sync.dry.watch import Watch
from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["install"]

__tracebackhide__ = NOT_FOR_USERS

_NESTED = 4
"""A graph's batch holds a store, the store a mapping, and that the tensors."""


def install(watch: Watch, patches: Patches) -> None:
    """Replace these calls for the length of a dry run."""
    _install_loader(watch, patches)
    _install_scaler(watch, patches)
    for name in ("register_parameter", "register_buffer"):
        patches.replace(Module, name, _register(watch, getattr(Module, name)))
    one_hot = _one_hot(watch, torch.nn.functional.one_hot)
    patches.replace(torch.nn.functional, "one_hot", one_hot)
    patches.replace(sys.modules["torch._C._nn"], "one_hot", one_hot)


def _install_loader(watch: Watch, patches: Patches) -> None:
    pinning: weakref.WeakSet[Any] = weakref.WeakSet()
    make, iterate, step = (
        DataLoader.__init__,
        DataLoader._get_iterator,
        _BaseDataLoaderIter.__next__,
    )

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if watch.live:
            frame = sys._getframe(1)
            watch.safely(lambda: note(self, frame), None)

    def note(loader: Any, frame: FrameType) -> None:
        owner = owner_of(frame, "DataLoader", "pin_memory")
        if isinstance(owner, DataLoader):  # a loader made of another one pins as that does
            pins = owner.pin_memory or owner in pinning
        else:
            pins = loader.pin_memory or is_variable(frame, "DataLoader", "pin_memory")
        if pins:
            pinning.add(loader)

    @functools.wraps(iterate)
    def _get_iterator(self: Any) -> Any:
        iterator = iterate(self)
        if self.pin_memory or self in pinning:
            pinning.add(iterator)
        return iterator

    @functools.wraps(step)
    def __next__(self: Any) -> Any:
        data = step(self)
        if watch.live and self in pinning:
            watch.safely(lambda: _pin(watch, data), None)
        return data

    patches.replace(DataLoader, "__init__", __init__)
    patches.replace(DataLoader, "_get_iterator", _get_iterator)
    patches.replace(_BaseDataLoaderIter, "__next__", __next__)


def _pin(watch: Watch, data: object, own: int = 0) -> None:
    """Mark what a loader with a GPU pins; `own` is how far into a batch's own class to look.

    A batch that has a ``pin_memory`` pins itself, with code that is not called here: what it
    holds is taken to be pinned.
    """
    if isinstance(data, Tensor):
        if not watch.marks.on_device(data):
            watch.marks.pin(data)
    elif own or callable(getattr(data, "pin_memory", None)):
        held = data.values() if isinstance(data, Mapping) else _held(data)
        for value in held if own < _NESTED else ():
            _pin(watch, value, own + 1)
    elif isinstance(data, Mapping):
        for value in data.values():
            _pin(watch, value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            _pin(watch, value)


def _held(batch: object) -> Iterable[object]:
    """What an object holds: the elements of a sequence, or the values of its attributes."""
    return batch if isinstance(batch, (list, tuple)) else getattr(batch, "__dict__", {}).values()


def _install_scaler(watch: Watch, patches: Patches) -> None:
    """A scaler for CUDA turns itself off here; on a GPU each step reads whether it overflowed."""
    wanted: weakref.WeakSet[Any] = weakref.WeakSet()
    make = GradScaler.__init__

    @functools.wraps(make)
    def __init__(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        make(self, device, *args, **kwargs)
        asked = kwargs.get("enabled", args[4] if len(args) > 4 else True)
        if device == "cuda" and asked:
            wanted.add(self)

    def reading(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            if watch.live and self in wanted:
                frame = sys._getframe(1)
                watch.safely(lambda: watch.report("item", frame), None)
            return original(self, *args, **kwargs)

        return read

    patches.replace(GradScaler, "__init__", __init__)
    patches.replace(GradScaler, "step", reading(GradScaler.step))
    patches.replace(GradScaler, "get_scale", reading(GradScaler.get_scale))


def _register(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def register(self: Module, name: str, tensor: Any, *args: Any, **kwargs: Any) -> None:
        original(self, name, tensor, *args, **kwargs)
        if torch.compiler.is_compiling():
            return
        if watch.live and isinstance(tensor, Tensor):
            watch.safely(lambda: _to_model(watch, tensor), None)

    return register


def _to_model(watch: Watch, tensor: Tensor) -> None:
    if watch.marks.raw(tensor) is Place.HOST:
        watch.marks.put(tensor, Place.MODEL)


def _one_hot(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    """On a GPU the values are not checked; only a missing `num_classes` is read from them."""

    @functools.wraps(original)
    def one_hot(tensor: Tensor, num_classes: int = -1, *args: Any, **kwargs: Any) -> Tensor:
        if torch.compiler.is_compiling():
            return original(tensor, num_classes, *args, **kwargs)
        if not watch.live or not watch.safely(lambda: watch.marks.on_device(tensor), False):
            return original(tensor, num_classes, *args, **kwargs)
        frame = sys._getframe(1)
        if num_classes == -1:
            watch.safely(lambda: watch.report("size-readback", frame), None)
        with watch.counted():
            return original(tensor, num_classes, *args, **kwargs)

    return one_hot
