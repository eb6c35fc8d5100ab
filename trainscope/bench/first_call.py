"""The first call of a function: its output, and the time a naive benchmark would have claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainscope.bench.cuda_timer import CudaTimer
from trainscope.bench.model import Cache
from trainscope.bench.subject import Subject
from trainscope.bench.timers import CpuTimer, Timer
from trainscope.errors import ConfigError

__all__ = ["device_of", "first_call", "timer_for"]


def first_call(subject: Subject, clock: Callable[[], int] = perf_counter_ns) -> tuple[Any, int]:
    """Call it once, with no warm-up before and no sync before the clock is read.

    Returns the output and the nanoseconds until the call returned.
    """
    if subject.prepare is not None:
        subject.prepare()
    _drain()
    began = clock()
    output = subject.call()
    took_ns = clock() - began
    _drain()
    return output, took_ns


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
    """The timer of the device; the L2 of a GPU is flushed unless ``cache`` is ``warm``.

    Raises:
        ConfigError: a device that is neither CUDA nor CPU, or a cold cache on the CPU.
    """
    device = device_of(inputs, output) if asked is None else torch.device(asked)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if device.type == "cuda":
        return CudaTimer(device, cache=cache or "cold")
    if device.type != "cpu":
        raise ConfigError(f"device {device} is not supported; benchmarks run on cuda and cpu")
    if cache == "cold":
        raise ConfigError(
            "cache='cold' needs a CUDA device: a CPU's caches cannot be flushed from here; leave "
            "cache out, or pass cache='warm'"
        )
    return CpuTimer()


def _drain() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
