"""Copies and memsets of the GPU by direction and kind of host memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainscope.analysis.intervals import union
from trainscope.trace.window import CopyKind, Memory, OpKind, Window

__all__ = ["CopyTimes", "copies_by_kind"]

_TITLES = {
    CopyKind.H2D: "host to device",
    CopyKind.D2H: "device to host",
    CopyKind.D2D: "device to device",
    CopyKind.PEER: "device to another device",
    CopyKind.UNKNOWN: "unknown",
}


@dataclass(frozen=True)
class CopyTimes:
    """The copies of one direction and host memory, or the memsets."""

    title: str
    """``host to device`` or the like, ``memset``."""
    copy_kind: CopyKind | None
    """None for memsets."""
    host_memory: Memory | None
    """None where no host memory takes part."""
    count: int
    total_ns: int
    bytes_moved: int | None
    """None where no size is recorded."""
    alone_ns: int
    """Time in which the device ran them and nothing else."""

    @property
    def gb_per_s(self) -> float | None:
        """Bytes moved by the time in them; None where either is not known."""
        if self.bytes_moved is None or not self.total_ns:
            return None
        return self.bytes_moved / self.total_ns


def copies_by_kind(window: Window) -> tuple[CopyTimes, ...]:
    """Copies by direction and host memory, and memsets, most time first."""
    gpu = window.gpu
    moving = np.flatnonzero(gpu.kind != OpKind.KERNEL)
    found = []
    is_set = gpu.kind[moving] == OpKind.SET
    direction = np.where(is_set, -1, np.maximum(gpu.copy_kind[moving], 0))
    touches = np.isin(direction, (CopyKind.H2D, CopyKind.D2H))
    memory = np.where(touches, np.maximum(gpu.host_memory[moving], 0), -1)
    alone = _alone(window)
    for kind, host in sorted(set(zip(direction.tolist(), memory.tolist(), strict=True))):
        rows = moving[(direction == kind) & (memory == host)]
        size = gpu.bytes[rows]
        found.append(
            CopyTimes(
                title=_TITLES[CopyKind(kind)] if kind >= 0 else "memset",
                copy_kind=CopyKind(kind) if kind >= 0 else None,
                host_memory=Memory(host) if host >= 0 else None,
                count=len(rows),
                total_ns=int((gpu.end_ns[rows] - gpu.start_ns[rows]).sum()),
                bytes_moved=int(size[size >= 0].sum()) if (size >= 0).all() else None,
                alone_ns=int(alone[rows].sum()),
            )
        )
    return tuple(sorted(found, key=lambda copies: -copies.total_ns))


def _alone(window: Window) -> np.ndarray:
    """For each op the time in which its device ran no op of another one's."""
    gpu = window.gpu
    alone_ns = np.zeros(len(gpu), dtype=np.int64)
    for device in np.unique(gpu.device):
        rows = np.flatnonzero(gpu.device == device)
        edges = np.concatenate((gpu.start_ns[rows], gpu.end_ns[rows]))
        weight = np.concatenate((np.ones(len(rows)), -np.ones(len(rows)))).astype(np.int64)
        order = np.argsort(edges, kind="stable")
        at_ns, running = edges[order], np.cumsum(weight[order])
        single = union(at_ns[:-1][running[:-1] == 1], at_ns[1:][running[:-1] == 1])
        alone_ns[rows] = single.before_ns(gpu.end_ns[rows]) - single.before_ns(gpu.start_ns[rows])
    return alone_ns
