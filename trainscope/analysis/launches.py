"""How far the CPU runs ahead of the GPU, and what launching costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainscope.analysis.intervals import union
from trainscope.analysis.launched_by import calls_of_ops
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Column, OpKind, Window

__all__ = ["TINY_NS", "LaunchTimes", "QueueDepth", "first_launch_ns", "launch_times", "queue_depth"]

TINY_NS = 8_000
"""A kernel shorter than this takes less time than launching it: 7 to 8 µs, measured on an H200's
host for a small operator."""


@dataclass(frozen=True, eq=False)
class QueueDepth:
    """How many ops a device had been given and had not begun, at each change."""

    device: int
    time_ns: Column
    depth: Column
    """From that moment on."""

    @property
    def deepest(self) -> int:
        """The most ops that waited at once."""
        return int(self.depth.max(initial=0))

    def at(self, time_ns: Column) -> Column:
        """The depth at each moment."""
        place = np.searchsorted(self.time_ns, time_ns, side="right") - 1
        return np.where(place >= 0, self.depth[np.maximum(place, 0)] if len(self.depth) else 0, 0)

    def share_empty(self, start_ns: int, end_ns: int) -> float | None:
        """Share of a stretch in which nothing waited: the CPU was not ahead; None for no time."""
        if end_ns <= start_ns:
            return None
        waiting = self.depth > 0
        edges_ns = np.append(self.time_ns, max(end_ns, int(self.time_ns.max(initial=end_ns))))
        full = union(edges_ns[:-1][waiting], edges_ns[1:][waiting])
        covered = full.before_ns(np.array([start_ns, end_ns]))
        return 1.0 - float(covered[1] - covered[0]) / (end_ns - start_ns)


@dataclass(frozen=True, eq=False)
class LaunchTimes:
    """Launches, CPU lead and tiny kernels of the steps; without steps of the whole window."""

    launches: int
    """Calls that enqueued at least one GPU op; the replay of a CUDA graph is one."""
    kernels: int
    tiny_kernels: int
    """Those shorter than ``TINY_NS``."""
    tiny_ns: int
    """GPU time of those."""
    kernel_ns: int
    """GPU time of all kernels."""
    launch_call_ns: int
    """Time that CPU threads spent inside the calls that enqueue kernels and memsets; a copy's call
    may wait."""
    span_ns: int
    """Time of the steps, from the CPU's side."""
    steps: int
    """0 where there are none."""
    lead_op: Column
    """Rows of the GPU ops whose call is known, by start."""
    lead_ns: Column
    """CPU lead of each: its start less the end of its call. Below 0 it began during the call."""
    lead_median_ns: Column
    """Of the ops that each step enqueued; -1 for a step with none."""

    @property
    def launch_share(self) -> float | None:
        """Share of the steps' time spent in ``launch_call_ns``; None for no time."""
        return self.launch_call_ns / self.span_ns if self.span_ns > 0 else None

    @property
    def tiny_share(self) -> float | None:
        """Share of kernels that are tiny; None without kernels."""
        return self.tiny_kernels / self.kernels if self.kernels else None


def launch_times(window: Window, steps: WindowSteps) -> LaunchTimes:
    """What the steps launched; a long CPU lead means that the CPU is ahead, not that it is late."""
    gpu, calls = window.gpu, window.calls
    call = calls_of_ops(window)
    step = steps.of_ops(window)
    inside = step >= 0 if len(steps) else np.ones(len(gpu), dtype=bool)
    known = np.flatnonzero(inside & (call >= 0))
    ends_ns = calls.end_ns[call[known]] if len(calls) else known
    lead_ns = gpu.start_ns[known] - ends_ns
    kernel = inside & (gpu.kind == OpKind.KERNEL)
    spent_ns = gpu.end_ns - gpu.start_ns
    tiny = kernel & (spent_ns < TINY_NS)
    launching = np.unique(call[known])
    costing = np.unique(call[known][gpu.kind[known] != OpKind.COPY])
    medians = np.full(len(steps), -1, dtype=np.int64)
    if len(steps) and len(known):
        order = np.argsort(step[known], kind="stable")
        cuts = np.searchsorted(step[known][order], np.arange(len(steps) + 1))
        for place in np.flatnonzero(np.diff(cuts)):
            medians[place] = int(np.median(lead_ns[order[cuts[place] : cuts[place + 1]]]))
    if len(steps):
        span_ns = int((steps.until_ns - steps.start_ns).sum())
    else:
        span_ns = int(calls.end_ns.max() - calls.start_ns.min()) if len(calls) else 0
    return LaunchTimes(
        launches=len(launching),
        kernels=int(kernel.sum()),
        tiny_kernels=int(tiny.sum()),
        tiny_ns=int(spent_ns[tiny].sum()),
        kernel_ns=int(spent_ns[kernel].sum()),
        launch_call_ns=int((calls.end_ns - calls.start_ns)[costing].sum()),
        span_ns=span_ns,
        steps=len(steps),
        lead_op=known,
        lead_ns=lead_ns,
        lead_median_ns=medians,
    )


def first_launch_ns(window: Window, steps: WindowSteps) -> Column:
    """From the begin of each step to its first call that enqueued GPU work; -1 without one."""
    after = np.full(len(steps), -1, dtype=np.int64)
    call = np.unique(calls_of_ops(window))
    start_ns = window.calls.start_ns[call[call >= 0]]
    step = steps.at(start_ns)
    start_ns, step = start_ns[step >= 0], step[step >= 0]
    place, first = np.unique(step, return_index=True)
    after[place] = start_ns[first] - steps.start_ns[place]
    return after


def queue_depth(window: Window, device: int) -> QueueDepth:
    """How many ops of a device waited, over time; an op counts from the end of its call on.

    Ops without a recorded call are left out, and one that began during its call never waited.
    """
    gpu, calls = window.gpu, window.calls
    call = calls_of_ops(window)
    rows = np.flatnonzero((gpu.device == device) & (call >= 0))
    given_ns = calls.end_ns[call[rows]] if len(calls) else rows
    waits = gpu.start_ns[rows] > given_ns
    given_ns, began_ns = given_ns[waits], gpu.start_ns[rows][waits]
    time_ns, inverse = np.unique(np.concatenate((given_ns, began_ns)), return_inverse=True)
    change = np.concatenate((np.ones(len(given_ns)), -np.ones(len(began_ns))))
    depth = np.cumsum(np.bincount(inverse, weights=change, minlength=len(time_ns)))
    return QueueDepth(device, time_ns, depth.astype(np.int64))
