"""Copies between host and GPU: ``to``, ``cuda``, ``cpu``, ``pin_memory``, ``Module.to``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from trainscope.sync.dry.aliases import alias, take_room
from trainscope.sync.dry.call_site import says_cuda
from trainscope.sync.dry.devices import Devices, mapped
from trainscope.sync.dry.marks import Place
from trainscope.sync.dry.watch import Watch
from trainscope.sync.methods import replace_method
from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["install"]

__tracebackhide__ = NOT_FOR_USERS

_ASK_ON_GPU = ("lightning.fabric.utilities.apply_func", "lightning_fabric.utilities.apply_func")
"""They ask for non_blocking unless the type of the device is cpu, as it is here."""


def install(watch: Watch, devices: Devices, patches: Patches) -> None:
    """Replace the moving methods of Tensor and Module for the length of a dry run."""
    moves = _Moves(watch, devices)
    replace_method(patches, "to", moves.to)
    replace_method(patches, "cuda", moves.cuda)
    replace_method(patches, "cpu", moves.cpu)
    replace_method(patches, "pin_memory", moves.pin_memory)
    replace_method(patches, "is_pinned", moves.is_pinned)
    replace_method(patches, "resize_", moves.resize)
    patches.replace(Module, "to", moves.module_to(Module.to))


class _Moves:
    def __init__(self, watch: Watch, devices: Devices) -> None:
        self._watch = watch
        self._devices = devices

    def to(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watch = self._watch

        @functools.wraps(original)
        def to(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(self, *args, **kwargs)
            if not watch.live:
                return original(self, *args, **kwargs)
            frame = sys._getframe(1)
            place = watch.safely(lambda: moves._destination(args, kwargs, frame), None)
            if place is None:
                return original(self, *args, **kwargs)
            new_args, new_kwargs = mapped(args, kwargs)
            return moves._move(
                self,
                place,
                "d2h",
                frame,
                _non_blocking(args, kwargs)
                or (place is not Place.HOST and watch.safely(lambda: _asks_on_gpu(frame), False)),
                original,
                new_args,
                new_kwargs,
            )

        moves = self
        return to

    def cuda(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watch, to = self._watch, torch.Tensor.to

        @functools.wraps(original)
        def cuda(
            self: Tensor, device: Any = None, non_blocking: bool = False, **kwargs: Any
        ) -> Any:
            if torch.compiler.is_compiling():
                return original(self, device, non_blocking, **kwargs)
            if not watch.live:
                return original(self, device, non_blocking, **kwargs)
            frame = sys._getframe(1)
            watch.marks.names_device = True
            return moves._move(self, Place.DEVICE, "d2h", frame, non_blocking, to, ("cpu",), kwargs)

        moves = self
        return cuda

    def cpu(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watch = self._watch

        @functools.wraps(original)
        def cpu(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(self, *args, **kwargs)
            if not watch.live:
                return original(self, *args, **kwargs)
            frame = sys._getframe(1)
            return moves._move(self, Place.HOST, "cpu", frame, False, original, args, kwargs)

        moves = self
        return cpu

    def pin_memory(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watch = self._watch

        @functools.wraps(original)
        def pin_memory(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(self, *args, **kwargs)
            if not watch.live:
                return original(self, *args, **kwargs)
            if watch.marks.pinned(self):
                return self
            pinned = self.clone()
            watch.safely(lambda: watch.marks.pin(pinned), None)
            return pinned

        return pin_memory

    def is_pinned(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watch = self._watch

        @functools.wraps(original)
        def is_pinned(self: Tensor, *args: Any, **kwargs: Any) -> bool:
            if torch.compiler.is_compiling():
                return original(self, *args, **kwargs)
            if not watch.live:
                return original(self, *args, **kwargs)
            return watch.marks.pinned(self) or original(self, *args, **kwargs)

        return is_pinned

    def resize(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What was moved can be made longer, as collectives of objects do with what they send."""
        watch = self._watch

        @functools.wraps(original)
        def resize_(self: Tensor, *sizes: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and watch.live:
                watch.safely(lambda: grow(self, sizes), None)
            return original(self, *sizes, **kwargs)

        def grow(tensor: Tensor, sizes: tuple[Any, ...]) -> None:
            place = watch.marks.raw(tensor)
            with watch.counted():  # a size may be a tensor, which the call itself reads
                wanted = [int(size) for size in (sizes[0] if _is_list(sizes[0]) else sizes)]
            if take_room(tensor, wanted):
                watch.marks.put(tensor, place)

        return resize_

    def module_to(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Module.to` parses its device in C, so where it points is decided here, once."""
        watch = self._watch

        @functools.wraps(original)
        def to(self: Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(self, *args, **kwargs)
            if not watch.live:
                return original(self, *args, **kwargs)
            frame = sys._getframe(1)
            before = watch.here.moving_to
            watch.here.moving_to = watch.safely(
                lambda: moves._devices.destination(args, kwargs, frame, "to"), None
            )
            try:
                return original(self, *args, **kwargs)
            finally:
                watch.here.moving_to = before

        moves = self
        return to

    def _destination(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], frame: FrameType
    ) -> Place | None:
        given = self._watch.here.moving_to
        if given is not None and args and args[0] is not None:
            return given
        return self._devices.destination(args, kwargs, frame, "to")

    def _move(
        self,
        tensor: Tensor,
        place: Place,
        back: str,
        frame: FrameType,
        non_blocking: bool,
        original: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Report the copy of `tensor` to `place`, make it, and mark its result.

        `back`: the kind of wait when the copy goes to the host.
        """
        watch, marks = self._watch, self._watch.marks
        from_device = watch.safely(lambda: marks.on_device(tensor), False)
        to_device = place is not Place.HOST

        def report() -> None:
            if to_device:
                watch.host_to_device(tensor, frame, non_blocking=non_blocking)
            elif tensor.numel() > 0 and not non_blocking:
                watch.report(back, frame)

        copies = from_device != to_device
        with watch.h2d_range() if copies and to_device else nullcontext():
            if copies:
                watch.safely(report, None)
            with watch.counted():
                moved = original(tensor, *args, **kwargs)
        if not copies or not watch.live:
            return moved

        def settle() -> Any:
            result = moved
            # A leaf that trains stays the very tensor that the optimizer or `.grad` knows.
            leaf = tensor.is_leaf and tensor.requires_grad and torch.is_grad_enabled()
            if moved is tensor and not (to_device and leaf):
                result = alias(tensor)
            marks.put(result, place)
            if not to_device and non_blocking and tensor.numel() > 0:
                marks.launch_copy(result)
            return result

        return watch.safely(settle, moved)


def _is_list(value: object) -> bool:
    return isinstance(value, (tuple, list))


def _non_blocking(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return `non_blocking` as given to `to`: by name, or the first bool by position."""
    flags = [value for value in args[1:] if isinstance(value, bool)]
    return bool(kwargs.get("non_blocking", flags[0] if flags else False))


def _asks_on_gpu(frame: FrameType) -> bool:
    """Return whether ``non_blocking`` is False at `frame` only because there is no GPU here."""
    if frame.f_globals.get("__name__") in _ASK_ON_GPU:
        return True
    return says_cuda(frame, "to", "non_blocking")
