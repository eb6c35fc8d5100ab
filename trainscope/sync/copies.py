"""What kind of copy between CPU and GPU a call makes, from its operands and how long it blocked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = [
    "MEASURED_BYTES",
    "MEASURED_NS",
    "asks_non_blocking",
    "copy_kind",
    "on_gpu",
    "target_type",
]

# A non_blocking copy of pageable memory raises no warning, so its time must tell. Measured on an
# H200 behind a busy queue: up to 1 MiB it returned in under 0.2 ms, from 4 MiB on it waited until
# the queue had drained.
MEASURED_BYTES = 1 << 20
MEASURED_NS = 200_000
_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Classes without a ``__torch_function__`` that could hear of it."""


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether it is on a CUDA device; a subclass's ``__torch_function__`` is not told of it."""
    if type(tensor) in _PLAIN:
        return tensor.is_cuda
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.is_cuda


def asks_non_blocking(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return the ``non_blocking`` of a call of ``.to``, ``.cuda`` or ``.copy_``.

    In each of them it is the first bool among the positional arguments.
    """
    given = kwargs.get("non_blocking")
    if given is not None:
        return bool(given)
    return next((value for value in args if isinstance(value, bool)), False)


def target_type(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the type of device that ``.to(*args, **kwargs)`` names, or None when it names none."""
    target = kwargs.get("device")
    if target is None:
        target = args[0] if args else kwargs.get("other")
    if target is None or isinstance(target, torch.dtype):
        return None
    if isinstance(target, str):
        return target.partition(":")[0]
    if isinstance(target, torch.device):
        return target.type
    if isinstance(target, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return "cuda" if target.is_cuda else target.device.type
    if isinstance(target, int) and not isinstance(target, bool):
        return "cuda"
    return None


def copy_kind(
    *,
    to_device: bool,
    pinned: bool,
    non_blocking: bool,
    waited: bool,
    bytes_moved: int,
    blocked_ns: int,
) -> str | None:
    """Return the kind of sync of one copy, or None when it did not wait.

    `pinned` is of the host side. `waited` says that torch itself announced a wait, or, where it
    cannot announce, that the copy was a blocking one.
    """
    if waited:
        if not to_device:
            return "d2h"
        return "h2d-pinned" if pinned else "h2d-pageable"
    if not non_blocking or pinned:
        return None
    if bytes_moved <= MEASURED_BYTES or blocked_ns < MEASURED_NS:
        return None
    return "h2d-nonblocking-pageable" if to_device else "d2h-nonblocking-pageable"
