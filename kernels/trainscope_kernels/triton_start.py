"""Starts a compiled Triton kernel the short way: straight with the C function of its launcher.

What Triton does in Python at each launch (asking for the device and the stream, building what hooks
would be told, packing the arguments anew) costs the CPU several times as much as the launch.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from triton import knobs

__all__ = ["FUSED", "Start", "compiled_start", "starter"]

FUSED = {"enable_fp_fusion": True}
"""An option of every launch: a product and a sum are one instruction, rounded once.

That is what was measured, and what Triton does by itself until 3.9, which warns of 3.10.
"""
Start = Callable[[int, Sequence[int | None], tuple[Any, ...]], None]
"""Takes the number of programs, along one dimension, and all arguments of a kernel in their order.

Addresses first, aligned as those that it was compiled for, None for no tensor; then the rest,
constants included.
"""


@functools.lru_cache(maxsize=4096)
def starter(compiled: Any, device: int) -> Start:
    """What enqueues ``compiled`` on the current stream of ``device``, which must be current.

    compiled: what Triton returns of a launch.
    """
    short = _short_way(compiled)
    if short is None:
        return lambda programs, addresses, rest: compiled[(programs, 1, 1)](*addresses, *rest)
    launch, between, in_one = short
    stream_of: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    runtime = knobs.runtime
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    told_before, told_after = _told_by(enter), _told_by(leave)

    def start(programs: int, addresses: Sequence[int | None], rest: tuple[Any, ...]) -> None:
        if (
            told_before
            or told_after
            or runtime.launch_enter_hook is not enter
            or runtime.launch_exit_hook is not leave
        ):
            compiled[(programs, 1, 1)](*addresses, *rest)
        elif in_one:
            launch(programs, 1, 1, stream_of(device), *between, (*addresses, *rest))
        else:
            launch(programs, 1, 1, stream_of(device), *between, *addresses, *rest)

    return start


def compiled_start(
    kernel: Any, device: int, arguments: tuple[Any, ...], constants: Mapping[str, Any]
) -> Start:
    """What ``starter`` gives for a kernel that may not have been launched yet; starts nothing.

    arguments: the dtype for each tensor, whose address is then a multiple of 16. constants: what
    is given by name, warps and stages included. The device must be the current one.
    """
    return starter(kernel.warmup(*arguments, grid=(1,), **constants), device)


def _short_way(compiled: Any) -> tuple[Callable[..., None], tuple[Any, ...], bool] | None:
    """The C function, what it gets between the stream and the arguments, and how it takes these.

    As one tuple since Triton 3.7, one by one before. None where that cannot be told: a launcher
    that needs memory of its own or instruments kernels does more than pass on.

    Found by letting the launcher call something that takes note instead, so that no order of
    arguments is written down here, which changes between releases.
    """
    launcher: Any = getattr(compiled, "run", None)
    launch = getattr(launcher, "launch", None)
    if launch is None or getattr(launcher, "gsan_enabled", False):
        return None
    if launcher.global_scratch_size or launcher.profile_scratch_size:
        return None
    asked = copy.copy(launcher)  # another thread may be launching with it
    noted: list[tuple[Any, ...]] = []
    asked.launch = lambda *given: noted.append(given)
    grid_and_stream = tuple(object() for _ in range(4))
    arguments = object(), object()
    hooks = None, None, None
    asked(*grid_and_stream, compiled.function, compiled.packed_metadata, *hooks, *arguments)
    (given,) = noted
    if not _are(given[:4], grid_and_stream):
        return None
    if _are(given[-2:], arguments):
        return launch, given[4:-2], False
    if isinstance(given[-1], tuple) and _are(given[-1], arguments):
        return launch, given[4:-1], True
    return None


def _are(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _told_by(hook: Any) -> Sequence[Any]:
    """Whom a hook tells of launches, say a profiler: a list that fills when somebody asks for it.

    In Triton 3.4 a hook is a function itself, or None.
    """
    return () if hook is None else getattr(hook, "calls", (hook,))
