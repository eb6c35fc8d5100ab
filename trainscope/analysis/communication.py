"""Collectives on the GPU, and how much of their time computing hides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.intervals import union
from trainscope.analysis.kernel_names import collective_of
from trainscope.trace.window import OpKind, Window

__all__ = ["CommunicationTimes", "collectives", "communication_times"]


@dataclass(frozen=True)
class CommunicationTimes:
    """The NCCL kernels of one device; a kernel's time holds the wait for the other ranks."""

    device: int
    count: int
    total_ns: int
    """Time in which at least one was running."""
    hidden_ns: int
    """The part of it in which another kernel was running as well."""
    by_collective: tuple[tuple[str, int, int], ...]
    """Name, count and summed nanoseconds, most time first."""

    @property
    def exposed_ns(self) -> int:
        """Time in which only they were running."""
        return self.total_ns - self.hidden_ns


def collectives(window: Window) -> NDArray[np.bool_]:
    """Of each GPU op whether it is a collective."""
    gpu = window.gpu
    is_one = np.array([collective_of(name) is not None for name in window.names] or [False])
    known = (gpu.kind == OpKind.KERNEL) & (gpu.name_id >= 0) & (gpu.name_id < len(is_one))
    return known & is_one[np.where(known, gpu.name_id, 0)]


def communication_times(window: Window) -> tuple[CommunicationTimes, ...]:
    """The devices that ran NCCL kernels, by number."""
    gpu = window.gpu
    names = [collective_of(name) for name in window.names]
    collective = collectives(window)
    computing = (gpu.kind == OpKind.KERNEL) & ~collective
    return tuple(
        _of_device(window, names, int(device), collective, computing)
        for device in np.unique(gpu.device[collective])
    )


def _of_device(
    window: Window,
    names: list[str | None],
    device: int,
    collective: NDArray[np.bool_],
    computing: NDArray[np.bool_],
) -> CommunicationTimes:
    gpu = window.gpu
    mine = np.flatnonzero(collective & (gpu.device == device))
    others = np.flatnonzero(computing & (gpu.device == device))
    talking = union(gpu.start_ns[mine], gpu.end_ns[mine])
    work = union(gpu.start_ns[others], gpu.end_ns[others])
    hidden_ns = work.before_ns(talking.end_ns) - work.before_ns(talking.start_ns)
    by_name: dict[str, tuple[int, int]] = {}
    for row in mine:
        name = names[gpu.name_id[row]] or ""
        count, spent_ns = by_name.get(name, (0, 0))
        by_name[name] = count + 1, spent_ns + int(gpu.end_ns[row] - gpu.start_ns[row])
    return CommunicationTimes(
        device=device,
        count=len(mine),
        total_ns=int((talking.end_ns - talking.start_ns).sum()),
        hidden_ns=int(hidden_ns.sum()),
        by_collective=tuple(
            (name, count, spent_ns)
            for name, (count, spent_ns) in sorted(by_name.items(), key=lambda item: -item[1][1])
        ),
    )
