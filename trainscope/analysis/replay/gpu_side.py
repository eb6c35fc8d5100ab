"""What a window tells of the GPU for its replay: lanes, gaps between ops, latency, copy rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.intervals import union
from trainscope.analysis.launched_by import calls_of_ops, ops_of_calls
from trainscope.trace.window import Column, GpuOps, Memory, OpKind, Window

__all__ = ["GpuSide", "gpu_side", "inner_gap_ns", "pinned_rate"]

_LONGEST_GAP_NS = 10_000
_USUAL_GAP_NS = 1_300.0
_USUAL_LATENCY_NS = 1_000.0
_SEEN_BYTES = 1 << 20
_PCIE_5 = ("H100", "H200", "H20", "GH200", "B100", "B200", "B300", "RTX 50", "RTX PRO 6000")
_PCIE_5_BYTES_PER_NS, _PCIE_4_BYTES_PER_NS = 55.0, 25.0


@dataclass(frozen=True, eq=False)
class GpuSide:
    """Streams as lanes, and who enqueued what; rows are those of ``Window.gpu``."""

    lanes: dict[tuple[int, int], int]
    """Device and stream of each lane, in order."""
    lane_of_op: Column
    op_of_call: Column
    """The first op of each call; -1 for none."""
    call_of_op: Column
    blocks: dict[int, list[int]]
    """All ops of each call that enqueued any: more than one for a replayed graph."""
    gap_ns: NDArray[np.float64]
    """Before each op that had been queued, since the one before it ended; else the usual gap."""
    latency_ns: float
    """From the end of a launch to the start of its kernel on an idle stream."""

    def busy_ns(
        self, window: Window, ops: Column, idle_ns: NDArray[np.float64] | None = None
    ) -> int:
        """GPU time of ops in the busiest lane, without what of each op is no work.

        How far lanes overlap is not the same each time.
        """
        gpu = window.gpu
        most = 0
        for lane in np.unique(self.lane_of_op[ops]):
            mine = ops[self.lane_of_op[ops] == lane]
            busy = union(gpu.start_ns[mine], gpu.end_ns[mine])
            less_ns = 0 if idle_ns is None else int(idle_ns[mine].sum())
            most = max(most, int((busy.end_ns - busy.start_ns).sum()) - less_ns)
        return most


def gpu_side(window: Window) -> GpuSide:
    """Read from all ops of the window, inside and outside its steps."""
    gpu, calls = window.gpu, window.calls
    call_of_op = calls_of_ops(window)
    pairs = sorted(set(zip(gpu.device.tolist(), gpu.stream.tolist(), strict=True)))
    lanes = {pair: place for place, pair in enumerate(pairs)}
    lane_of_op = np.array(
        [lanes[pair] for pair in zip(gpu.device.tolist(), gpu.stream.tolist(), strict=True)],
        dtype=np.int64,
    )
    blocks: dict[int, list[int]] = {}
    for op, call in enumerate(call_of_op.tolist()):
        if call >= 0:
            blocks.setdefault(call, []).append(op)
    op_of_call = ops_of_calls(window)
    owner = call_of_op[np.maximum(op_of_call, 0)] if len(gpu) else op_of_call
    op_of_call = np.where(owner == np.arange(len(calls)), op_of_call, -1)  # of calls alike one
    known = call_of_op >= 0
    at = np.maximum(call_of_op, 0)
    none = np.full(len(gpu), -1, dtype=np.int64)
    launch_ns = np.where(known, calls.start_ns[at], -1) if len(calls) else none
    launched_ns = np.where(known, calls.end_ns[at], -1) if len(calls) else none
    latency_ns = _latency(window, lane_of_op, launch_ns, launched_ns)
    return GpuSide(
        lanes=lanes,
        lane_of_op=lane_of_op,
        op_of_call=op_of_call,
        call_of_op=call_of_op,
        blocks=blocks,
        gap_ns=_gaps(window, lane_of_op, call_of_op, launched_ns, latency_ns),
        latency_ns=latency_ns,
    )


def inner_gap_ns(gpu: GpuOps, rows: list[int]) -> float:
    """Time within the stretch of ops of one call in which none of them runs."""
    if len(rows) < 2:
        return 0.0
    busy = union(gpu.start_ns[rows], gpu.end_ns[rows])
    return float(busy.end_ns[-1] - busy.start_ns[0] - (busy.end_ns - busy.start_ns).sum())


def _gaps(
    window: Window,
    lane_of_op: Column,
    call_of_op: Column,
    launched_ns: Column,
    latency_ns: float,
) -> NDArray[np.float64]:
    gpu = window.gpu
    gap = np.full(len(gpu), np.nan)
    for lane in np.unique(lane_of_op):
        rows = np.flatnonzero(lane_of_op == lane)
        before_ns = np.maximum.accumulate(gpu.end_ns[rows])[:-1]
        since = gpu.start_ns[rows[1:]] - before_ns
        queued = launched_ns[rows[1:]] + latency_ns < before_ns
        queued &= call_of_op[rows[1:]] != call_of_op[rows[:-1]]  # a graph's own gaps are shorter
        gap[rows[1:]] = np.where(queued & (since < _LONGEST_GAP_NS), since, np.nan)
    seen = np.isfinite(gap)
    usual = float(np.median(gap[seen])) if seen.any() else _USUAL_GAP_NS
    return np.maximum(np.where(seen, gap, usual), 0.0)


def _latency(window: Window, lane_of_op: Column, launch_ns: Column, launched_ns: Column) -> float:
    """The median over kernels whose stream was empty when they were launched."""
    gpu = window.gpu
    found = []
    for lane in np.unique(lane_of_op):
        rows = np.flatnonzero(lane_of_op == lane)
        before_ns = np.concatenate(([0], np.maximum.accumulate(gpu.end_ns[rows])[:-1]))
        alone = (launch_ns[rows] >= 0) & (gpu.kind[rows] == OpKind.KERNEL)
        alone &= before_ns < launch_ns[rows]
        found.append((gpu.start_ns[rows] - launched_ns[rows])[alone])
    every = np.concatenate(found) if found else np.empty(0)
    # a kernel may begin before the call that launches it returns
    return float(np.clip(np.median(every), -5_000, 20_000)) if len(every) else _USUAL_LATENCY_NS


def pinned_rate(window: Window) -> tuple[float, bool]:
    """Bytes per ns between pinned memory and the GPU, and whether large copies showed it.

    Where there are none it is what the GPU's bus usually gives.
    """
    gpu = window.gpu
    seen = (gpu.host_memory == Memory.PINNED) & (gpu.bytes >= _SEEN_BYTES)
    length_ns = gpu.end_ns[seen] - gpu.start_ns[seen]
    if (length_ns > 0).any():
        return float(np.median(gpu.bytes[seen][length_ns > 0] / length_ns[length_ns > 0])), True
    fast = any(part in name for name in window.devices for part in _PCIE_5)
    return (_PCIE_5_BYTES_PER_NS if fast else _PCIE_4_BYTES_PER_NS), False
