"""Copies of whole storages: `deepcopy`, `torch.save`, `torch.load`, memory that is shared."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, serialization

from trainscope.sync.dry.devices import Devices
from trainscope.sync.dry.marks import Place
from trainscope.sync.dry.watch import Watch
from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["install"]

__tracebackhide__ = NOT_FOR_USERS


def install(watch: Watch, devices: Devices, patches: Patches) -> None:
    """Replace what copies, saves and loads storages for the length of a dry run."""
    patches.replace(torch.UntypedStorage, "clone", _clone(watch, torch.UntypedStorage.clone))
    for name in ("_share_fd_cpu_", "_share_filename_cpu_"):
        share = _share(watch, getattr(torch.UntypedStorage, name))
        patches.replace(torch.UntypedStorage, name, share)
    _install_save(watch, patches)
    load = _load(watch, devices, torch.load)
    patches.replace(torch, "load", load)
    patches.replace(serialization, "load", load)


def _clone(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clone(self: Any) -> Any:
        if not watch.live:
            return original(self)
        with watch.counted():
            copy = original(self)
        watch.safely(lambda: watch.marks.carry(self, copy), None)
        return copy

    return clone


def _share(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    """To share memory of the host is to copy it; on a GPU only its handle goes to others."""

    @functools.wraps(original)
    def share(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not watch.live:
            return original(self, *args, **kwargs)
        with watch.counted():
            return original(self, *args, **kwargs)

    return share


class _Saving(threading.local):
    """The storages that the `torch.save` of this thread has met; None outside one."""

    met: set[int] | None = None


def _install_save(watch: Watch, patches: Patches) -> None:
    """On a GPU each storage is copied to the host when it is first met, and waited for."""
    saving = _Saving()
    save, location_tag = serialization.save, serialization.location_tag

    @functools.wraps(save)
    def save_and_count(*args: Any, **kwargs: Any) -> None:
        before, saving.met = saving.met, set()
        try:
            save(*args, **kwargs)
        finally:
            saving.met = before

    @functools.wraps(location_tag)
    def tag(storage: Any) -> Any:
        if watch.live and saving.met is not None:
            frame = sys._getframe(1)
            watch.safely(lambda: meet(storage, frame), None)
        return location_tag(storage)

    def meet(storage: Any, frame: Any) -> None:
        untyped = getattr(storage, "_untyped_storage", storage)
        met = saving.met
        if met is None or untyped._cdata in met:
            return
        met.add(untyped._cdata)
        if untyped.nbytes() and watch.marks.storage_on_device(untyped):
            watch.report("d2h", frame)

    for owner in (torch, serialization):
        patches.replace(owner, "save", save_and_count)
    patches.replace(serialization, "location_tag", tag)


def _load(watch: Watch, devices: Devices, original: Callable[..., Any]) -> Callable[..., Any]:
    """On a GPU each storage is read into memory of the host, and copied from there."""

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not watch.live:
            return original(f, map_location, *args, **kwargs)
        frame = sys._getframe(1)
        given = isinstance(map_location, (str, torch.device))
        place = watch.safely(
            lambda: devices.resolve(map_location, frame, "load") if given else None, None
        )
        loaded = original(f, "cpu" if place is Place.DEVICE else map_location, *args, **kwargs)
        if place is not None and watch.live:
            watch.safely(lambda: place_all(loaded, place, frame), None)
        return loaded

    def place_all(loaded: object, place: Place, frame: FrameType) -> None:
        storages: set[int] = set()
        for tensor in _tensors(loaded):
            watch.marks.put(tensor, place)
            if tensor.numel():
                storages.add(tensor.untyped_storage()._cdata)
        if place is Place.DEVICE:
            watch.report("h2d-pageable", frame, count=len(storages))

    return load


def _tensors(data: object) -> Iterator[Tensor]:
    if isinstance(data, Tensor):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _tensors(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from _tensors(value)
