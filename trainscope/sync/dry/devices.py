"""Where a device given by the script points: to the GPU it stands for, or to the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, _utils, serialization, storage  # pyright: ignore[reportAttributeAccessIssue]

from trainscope.sync.dry.call_site import names_cpu
from trainscope.sync.dry.handed_device import HandedDevices
from trainscope.sync.dry.marks import Place
from trainscope.sync.dry.watch import Watch
from trainscope.sync.methods import replace_attribute
from trainscope.sync.patches import Patches

__all__ = ["CPU", "Devices", "follow_gradients", "mapped"]

CPU = torch.device("cpu")
# They pass on the device of a storage, not one that the script gave.
_REBUILDING = frozenset(
    file for file in (_utils.__file__, storage.__file__, serialization.__file__) if file
)


class Devices:
    """Resolves device arguments; `tensor.device` answers with objects that carry a place.

    All CPU devices are equal, so a script that passes on ``x.device`` is followed by the identity
    of the object: one stands for the host, one for the GPU, one for wherever the parameters are.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._of_place = {place: torch.device("cpu") for place in Place}
        self._handed = HandedDevices()

    def resolve(self, device: object, frame: FrameType, called: str) -> Place | None:
        """Return the place that `device` stands for at this call; None when it is none of ours.

        `called`: the name of the function that is given the device. A device that the script
        gives other than as a literal "cpu" switches to the rule for scripts that name devices.
        """
        if device is None or isinstance(device, bool):
            return None
        marks = self._watch.marks
        for place, known in self._of_place.items():
            if device is known:
                return Place.HOST if place is Place.MODEL and marks.names_device else place
        if frame.f_code.co_filename in _REBUILDING:
            return None
        kind = _kind(device)
        if kind not in ("cpu", "cuda"):
            return None
        if kind == "cpu" and names_cpu(frame, called):
            return Place.HOST
        if (
            kind == "cpu"
            and isinstance(device, (str, torch.device))
            and self._handed.is_host(device, frame)
        ):
            return Place.HOST
        marks.names_device = True
        return Place.DEVICE

    def destination(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], frame: FrameType, called: str
    ) -> Place | None:
        """Return where ``tensor.to(*args, **kwargs)`` moves to; None when it names no device."""
        other = kwargs.get("other", kwargs.get("tensor", args[0] if args else None))
        if isinstance(other, Tensor):
            return self._watch.marks.place(other)
        device = kwargs.get("device", args[0] if args else None)
        if not isinstance(device, (str, int, torch.device)):
            return None
        return self.resolve(device, frame, called)

    def install(self, patches: Patches) -> None:
        """Let ``Tensor.device`` answer with our objects for CPU tensors."""
        getter = torch._C.TensorBase.device.__get__  # type: ignore[attr-defined]
        watch, of_place = self._watch, self._of_place

        def device(tensor: Tensor) -> torch.device:
            real = getter(tensor)
            if torch.compiler.is_compiling() or real.type != "cpu" or not watch.live:
                return real
            return watch.safely(lambda: of_place[watch.marks.raw(tensor)], real)

        replace_attribute(patches, "device", device)


def follow_gradients(watch: Watch, patches: Patches) -> None:
    """Let ``tensor.grad`` stand where the tensor stands: a compiled backward leaves no mark."""
    slot: Any = torch._C.TensorBase.grad  # type: ignore[attr-defined]

    def grad(tensor: Tensor) -> Tensor | None:
        gradient = slot.__get__(tensor)
        if gradient is not None and watch.live and not torch.compiler.is_compiling():
            watch.safely(lambda: settle(tensor, gradient), None)
        return gradient

    def settle(tensor: Tensor, gradient: Tensor) -> None:
        place = watch.marks.raw(tensor)
        if place is not Place.HOST:
            watch.marks.settle(gradient, place)

    replace_attribute(patches, "grad", grad)


def _kind(device: object) -> str | None:
    if isinstance(device, torch.device):
        return device.type
    if isinstance(device, int):
        return "cuda"
    return device.split(":")[0] if isinstance(device, str) else None


def mapped(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments with a CUDA device replaced by the CPU."""
    new_args, new_kwargs = list(args), dict(kwargs)
    if new_args and _is_cuda(new_args[0]):
        new_args[0] = CPU
    if _is_cuda(new_kwargs.get("device")):
        new_kwargs["device"] = CPU
    return new_args, new_kwargs


def _is_cuda(device: object) -> bool:
    return isinstance(device, (str, int, torch.device)) and (
        not isinstance(device, bool) and _kind(device) == "cuda"
    )
