"""Whether something else than this process was using the GPU in a window."""

from __future__ import annotations

import numpy as np

from trainscope.analysis.replay.gpu_side import GpuSide
from trainscope.trace.window import OpKind, Window

__all__ = ["LATE_NS", "late_share"]

LATE_NS = 50_000
"""A kernel on an idle GPU begins some µs after its launch: in windows of an H200 that had no other
work not one of 1,600 took 4 µs, and in those of one that seven processes shared half took 200."""
_ENOUGH_KERNELS = 20
_ENOUGH_LATE = 3
"""One may have had a reason of its own."""


def late_share(window: Window, side: GpuSide) -> float:
    """Share of the kernels launched while this process ran nothing on the GPU that began later."""
    gpu, calls = window.gpu, window.calls
    alone = gpu.kind == OpKind.KERNEL
    # a graph of many nodes takes its time to begin
    single = [call >= 0 and len(side.blocks[call]) == 1 for call in side.call_of_op.tolist()]
    alone &= np.array(single, dtype=bool)
    if alone.sum() < _ENOUGH_KERNELS:
        return 0.0
    at = np.maximum(side.call_of_op, 0)
    for device in np.unique(gpu.device):
        rows = np.flatnonzero(gpu.device == device)
        rows = rows[np.argsort(gpu.start_ns[rows], kind="stable")]
        before_ns = np.concatenate(([-1], np.maximum.accumulate(gpu.end_ns[rows])[:-1]))
        alone[rows] &= before_ns < calls.start_ns[at[rows]]
    if alone.sum() < _ENOUGH_KERNELS:
        return 0.0
    since_ns = (gpu.start_ns - calls.end_ns[at])[alone]
    late = int((since_ns > LATE_NS).sum())
    return late / len(since_ns) if late >= _ENOUGH_LATE else 0.0
