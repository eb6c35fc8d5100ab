"""Functions that make tensors: with an explicit device they make a GPU one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from numbers import Number
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _device

from trainscope.sync.dry.aliases import alias
from trainscope.sync.dry.call_site import is_variable
from trainscope.sync.dry.devices import Devices, mapped
from trainscope.sync.dry.marks import Place
from trainscope.sync.dry.watch import Watch
from trainscope.sync.methods import Function, replace_method
from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["install"]

__tracebackhide__ = NOT_FOR_USERS

_NAMES = (
    "arange", "asarray", "as_tensor", "bartlett_window", "blackman_window", "empty", "empty_like",
    "empty_permuted", "empty_strided", "eye", "full", "full_like", "hamming_window",
    "hann_window", "kaiser_window", "linspace", "logspace", "normal", "ones", "ones_like", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "range",
    "scalar_tensor", "sparse_coo_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
    "zeros_like",
)  # fmt: skip
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
_FROM_DATA = frozenset({"as_tensor", "asarray", "new_tensor", "tensor"})


def install(watch: Watch, devices: Devices, patches: Patches) -> None:
    """Replace the factories, and the default device's way to them, for a dry run."""
    factories = _Factories(watch, devices)
    constructors = _device._device_constructors()  # cached: must hold torch's own functions
    for name in _NAMES:
        _replace(patches, torch, name, factories)
    for name in ("fftfreq", "rfftfreq"):
        _replace(patches, torch.fft, name, factories)
    for name in _NEW:
        replace_method(patches, name, factories.wrap)
    context = _device.DeviceContext
    patches.replace(
        context,
        "__torch_function__",
        factories.by_default_device(context.__torch_function__, constructors),
    )


def _replace(patches: Patches, owner: ModuleType, name: str, factories: _Factories) -> None:
    original = getattr(owner, name)
    patches.replace(owner, name, Function(factories.wrap(original), original))


class _Factories:
    def __init__(self, watch: Watch, devices: Devices) -> None:
        self._watch = watch
        self._devices = devices

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watch, name = self._watch, original.__name__

        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*args, **kwargs)
            if not watch.live:
                return original(*args, **kwargs)
            return self._make(name, original, sys._getframe(1), args, kwargs)

        return make

    def by_default_device(
        self, original: Callable[..., Any], constructors: set[Callable[..., Any]]
    ) -> Callable[..., Any]:
        """Follow ``torch.set_default_device`` and ``with torch.device(…)``."""
        watch = self._watch

        @functools.wraps(original)
        def __torch_function__(
            self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            ours = not torch.compiler.is_compiling() and watch.live
            if not ours or func not in constructors or kwargs.get("device") is not None:
                return original(self, func, types, args, kwargs)
            kwargs["device"] = self.device
            return factories._make(func.__name__, func, sys._getframe(1), args, kwargs)

        factories = self
        return __torch_function__

    def _make(
        self,
        name: str,
        original: Callable[..., Any],
        frame: FrameType,
        args: Any,
        kwargs: dict[str, Any],
    ) -> Any:
        """Call `original`, report what it copies to the GPU, and mark what it made."""
        watch = self._watch
        if args and isinstance(args[0], torch.UntypedStorage):
            # bytes of a file, as safetensors reads them: its native code names a device always, the
            # CPU unless it was told another one, and what it was told is in no call that is seen
            return original(*args, **kwargs)
        place = watch.safely(lambda: self._devices.resolve(kwargs.get("device"), frame, name), None)
        pinned = "pin_memory" in kwargs and watch.safely(
            lambda: self._pins(kwargs, frame, name), False
        )
        if pinned:
            kwargs = {key: value for key, value in kwargs.items() if key != "pin_memory"}
        if place is None and not pinned and name != "new_tensor":
            return original(*args, **kwargs)
        kwargs = mapped((), kwargs)[1]
        made = original(*args, **kwargs)
        if not watch.live or not isinstance(made, Tensor):
            return made
        return watch.safely(
            lambda: self._settle(name, made, place, pinned, args, kwargs, frame), made
        )

    def _pins(self, kwargs: dict[str, Any], frame: FrameType, name: str) -> bool:
        """Return whether memory is pinned on a GPU machine: asked for, or left to a variable.

        ``pin_memory=(device == "cuda")`` is False here only because there is no GPU.
        """
        return bool(kwargs["pin_memory"]) or is_variable(frame, name, "pin_memory")

    def _settle(
        self,
        name: str,
        made: Tensor,
        place: Place | None,
        pinned: bool,
        args: Any,
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Tensor:
        watch, marks = self._watch, self._watch.marks
        data: Any = None
        if name in _FROM_DATA:
            at = 1 if name == "new_tensor" else 0
            data = args[at] if len(args) > at else kwargs.get("data", kwargs.get("obj"))
        if name == "new_tensor" and place is None:
            place = marks.raw(args[0])
        on_device = place is not None and place is not Place.HOST
        if place is Place.MODEL and marks.names_device:
            on_device = False
        if isinstance(data, Tensor):
            from_device = marks.on_device(data)
            if on_device and not from_device:
                watch.host_to_device(data, frame, non_blocking=False)
            elif from_device and not on_device and data.numel() > 0:
                watch.report("d2h", frame)
            if made is data and from_device != on_device:
                made = alias(data)
        elif data is not None and on_device and made.numel() > 0:
            watch.report(_data_kind(data), frame)
        if place is not None:
            marks.put(made, place)
        if pinned:
            marks.pin(made)
        return made


def _data_kind(data: object) -> str:
    if isinstance(data, np.ndarray):
        return "h2d-pageable"
    return "h2d-scalar" if isinstance(data, (Number, np.generic)) else "h2d-list"
