"""Where each tensor stands: marks on storages, so that views, `.data` and `detach` share them."""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["Made", "Marks", "Place"]

_ATTRIBUTE = "_trainscope_mark"
_WALK_LIMIT = 4096
"""Autograd nodes looked at to place a tensor that no operator was seen making."""


class Place(Enum):
    """What a CPU tensor stands for."""

    HOST = "host"
    DEVICE = "device"
    MODEL = "model"
    """A parameter, or computed from one: on the GPU only in a script that names no device."""


_FARTHEST_FIRST = (Place.DEVICE, Place.MODEL, Place.HOST)


class Made(Enum):
    """Of what a subscript made an index."""

    OF_LIST = "list"
    """On the host, and copied."""
    OF_BOOL = "bool"
    """Where the tensor is that is indexed."""


class _Mark:
    """What is known of one storage; `owner` tells marks of an earlier dry run from ours."""

    __slots__ = ("in_flight", "index", "owner", "pinned", "place", "within")

    def __init__(self, owner: object, place: Place) -> None:
        self.owner = owner
        self.place = place
        self.pinned = False
        self.in_flight = -1
        self.index: Made | None = None
        self.within = False


class Marks:
    """Reads and writes the marks of one dry run.

    ``names_device`` says which rule holds: False until the script names a device, and until then
    parameters stand for GPU tensors. ``waits`` counts the waits so far: a copy that was in flight
    before a wait has landed after it.
    """

    def __init__(self) -> None:
        self.names_device = False
        self.waits = 0

    def place(self, tensor: Tensor) -> Place:
        """Return where `tensor` stands under the rule that holds now (HOST or not HOST)."""
        mark = self._read(tensor)
        place = mark.place if mark is not None else self._infer(tensor)
        return Place.HOST if place is Place.MODEL and self.names_device else place

    def raw(self, tensor: Tensor) -> Place:
        """Return where `tensor` stands, with MODEL kept apart whatever rule holds."""
        mark = self._read(tensor)
        return mark.place if mark is not None else self._infer(tensor)

    def on_device(self, tensor: Tensor) -> bool:
        """Return whether `tensor` stands for one on the GPU."""
        return self.place(tensor) is not Place.HOST

    def put(self, tensor: Tensor, place: Place) -> None:
        """Let the storage of `tensor` stand for `place`; what is pinned stays so."""
        mark = self._own(tensor, place)
        if mark is not None:
            mark.place = place
            mark.in_flight = -1
            mark.within = False

    def settle(self, tensor: Tensor, place: Place) -> None:
        """Place a tensor that an operator returned, unless its storage has a place already."""
        mark = self._read(tensor)
        if mark is None:
            self._own(tensor, place)
        elif mark.within and place is not Place.HOST:
            mark.place, mark.within = place, False

    def made_within(self, tensor: Tensor) -> None:
        """Note that an operator made `tensor` for itself: it is where what is put into it is."""
        mark = self._own(tensor, Place.HOST)
        if mark is not None:
            mark.within = True

    def is_within(self, tensor: Tensor) -> bool:
        """Return whether an operator made `tensor` for itself, and has put nothing into it yet."""
        mark = self._read(tensor)
        return mark is not None and mark.within

    def pin(self, tensor: Tensor) -> None:
        """Let `tensor` stand for one in pinned host memory."""
        mark = self._own(tensor, Place.HOST)
        if mark is not None:
            mark.pinned = True

    def pinned(self, tensor: Tensor) -> bool:
        """Return whether `tensor` stands for one in pinned host memory."""
        mark = self._read(tensor)
        return mark is not None and mark.pinned

    def made_index(self, tensor: Tensor, made: Made) -> None:
        """Note that a subscript made the host tensor `tensor` to be its index."""
        mark = self._own(tensor, Place.HOST)
        if mark is not None:
            mark.index = made

    def index(self, tensor: Tensor) -> Made | None:
        """Return of what a subscript made `tensor`; None for a tensor that was there before."""
        mark = self._read(tensor)
        return None if mark is None else mark.index

    def launch_copy(self, tensor: Tensor) -> None:
        """Note that a non_blocking copy into the host tensor `tensor` may still be under way."""
        mark = self._own(tensor, Place.HOST)
        if mark is not None:
            mark.in_flight = self.waits

    def in_flight(self, tensor: Tensor) -> bool:
        """Return whether reading `tensor` now could read what was there before its copy."""
        mark = self._read(tensor)
        return mark is not None and mark.in_flight == self.waits

    def storage_on_device(self, storage: object) -> bool:
        """Return whether the storage object `storage` stands for GPU memory."""
        mark = getattr(storage, _ATTRIBUTE, None)
        if mark is None or mark.owner is not self:
            return False
        return mark.place is Place.DEVICE or (mark.place is Place.MODEL and not self.names_device)

    def carry(self, source: object, target: object) -> None:
        """Give the storage `target` the mark of the storage `source`."""
        mark = getattr(source, _ATTRIBUTE, None)
        if isinstance(mark, _Mark) and mark.owner is self:
            copy = _Mark(self, mark.place)
            setattr(target, _ATTRIBUTE, copy)

    def _read(self, tensor: Tensor) -> _Mark | None:
        storage = _storage(tensor)
        mark = getattr(storage, _ATTRIBUTE, None)
        return mark if mark is not None and mark.owner is self else None

    def _own(self, tensor: Tensor, place: Place) -> _Mark | None:
        storage = _storage(tensor)
        if storage is None:
            return None
        mark = getattr(storage, _ATTRIBUTE, None)
        if mark is None or mark.owner is not self:
            mark = _Mark(self, place)
            setattr(storage, _ATTRIBUTE, mark)
        return mark

    def _infer(self, tensor: Tensor) -> Place:
        """Place a tensor with no mark.

        One that holds others (a DTensor) is where those are; else it is a leaf that trains, or
        what a compiled function returned.
        """
        held = _held(tensor)
        if held:
            places = {self.raw(each) for each in held}
            return next(place for place in _FARTHEST_FIRST if place in places)
        if not isinstance(tensor, Parameter) and type(tensor) is not Tensor:
            return Place.HOST
        if tensor.grad_fn is not None:
            place = self._of_leaves(tensor)
        elif isinstance(tensor, Parameter) or tensor.requires_grad:
            place = Place.MODEL
        else:
            return Place.HOST
        self.settle(tensor, place)
        return place

    def _of_leaves(self, tensor: Tensor) -> Place:
        found = Place.HOST
        todo: list[object] = [tensor.grad_fn]
        seen: set[object] = set()
        while todo and len(seen) < _WALK_LIMIT:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, Tensor):
                place = self.raw(leaf)
                if place is Place.DEVICE:
                    return place
                if place is Place.MODEL:
                    found = place
            todo.extend(after for after, _ in getattr(node, "next_functions", ()))
        return found


def _held(tensor: Tensor) -> list[Tensor]:
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return []
    names, _ = flatten()
    return [held for name in names if isinstance(held := getattr(tensor, name), Tensor)]


def _storage(tensor: Tensor) -> torch.UntypedStorage | None:
    try:
        if type(tensor) is Tensor:
            return tensor.untyped_storage()
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # other layouts have none of their own
        if tensor.layout is not torch.sparse_coo:
            return None
        with _disable_current_modes():  # it would be an operator of the program's
            return tensor._values().untyped_storage()
