"""On which device the work is done, and what times it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainscope.bench.cuda_timer import CudaTimer
from trainscope.bench.model import Cache
from trainscope.bench.timers import CpuTimer, Timer
from trainscope.errors import ConfigError

__all__ = ["device_named", "device_of", "timer_for", "timer_on"]


def device_named(device: str | torch.device | None) -> torch.device:
    """The device of that name, a GPU with its index; None is the current GPU, else the CPU.

    Raises:
        ConfigError: the name is none of a device that is here.
    """
    usable = torch.cuda.is_available()
    if device is None:
        device = "cuda" if usable else "cpu"
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError):
        place = None
    if place is None or place.type not in ("cuda", "cpu"):
        raise ConfigError(f"device {str(device)!r} is not supported; pass cpu, cuda or cuda:1")
    if place.type == "cpu":
        return torch.device("cpu")  # cpu:1 is the same one
    if not usable:
        raise ConfigError(f"device {str(device)!r} is not there: this torch sees no GPU; pass cpu")
    index = torch.cuda.current_device() if place.index is None else place.index
    count = torch.cuda.device_count()
    if index >= count:
        raise ConfigError(f"device {str(device)!r} is not there: GPUs 0 to {count - 1} are")
    return torch.device("cuda", index)


def device_of(inputs: Sequence[Any], output: Any) -> torch.device:
    """The GPU of any tensor in the inputs or the output, else the current one, else the CPU.

    A function that returns no tensor is timed on the GPU once this process uses one: it may well
    have started work there.
    """
    leaves = pytree.tree_leaves((output, tuple(inputs)))
    devices = [each.device for each in leaves if torch.is_tensor(each)]
    for device in devices:
        if device.type == "cuda":
            return device
    returned = any(torch.is_tensor(each) for each in pytree.tree_leaves(output))
    if not returned and torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def timer_for(
    cache: Cache | None, asked: str | torch.device | None, inputs: Sequence[Any], output: Any
) -> Timer:
    """``timer_on`` the device that is asked for, else on ``device_of`` the inputs and output.

    Raises:
        ConfigError: a device that is not here or not supported, or a cold cache on the CPU.
    """
    return timer_on(device_of(inputs, output) if asked is None else device_named(asked), cache)


def timer_on(device: torch.device, cache: Cache | None = None) -> Timer:
    """The timer of a device; the L2 of a GPU is flushed unless ``cache`` is ``warm``.

    Raises:
        ConfigError: a cold cache on the CPU.
    """
    if device.type == "cuda":
        return CudaTimer(device, cache=cache or "cold")
    if cache == "cold":
        raise ConfigError(
            "cache='cold' needs a CUDA device: a CPU's caches cannot be flushed from here; leave "
            "cache out, or pass cache='warm'"
        )
    return CpuTimer()
