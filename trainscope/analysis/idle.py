"""GPU busy and idle in each step, and the idle time by cause, exact to the nanosecond.

The time of a step on a device runs from the end of the last op of the steps before to the end of
its own last op, whichever step's time that is on the CPU; so a CPU that runs ahead moves nothing to
another step, and the steps together have no hole. The first begins where its range does; the last
ends where its range does, if its ops end sooner.

The cause of an idle moment, first that holds:

- ``SYNC``: a sync is to blame (``sync_claims.claim_idle``).
- ``QUEUED``: the next op had been enqueued in time, so the GPU itself took so long (a microsecond
  between ops, a wait for another stream or an allocation).
- ``UNKNOWN``: no call is recorded for the next op.
- ``COPY`` or ``LAUNCH``: the call that enqueues the next op is running, or has returned and the op
  is on its way.
- ``DATA``: inside a range or event that is named after loading data.
- ``COMMUNICATION``: inside a call of torch.distributed or NCCL.
- ``COPY``: inside a copy between host and GPU, or in pinning memory.
- ``LAUNCH``: inside an operator or call, or less than 0.1 ms between two: launching is too slow.
- ``CPU_BEFORE_LAUNCH``: any other CPU time before the first launch of a step, or after the last of
  all; what it was is not recorded.
- ``CPU_WORK``: any other CPU time.

"Inside" is said of the loop's thread and of autograd's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from trainscope.analysis.cpu_cover import cover_of_cpu
from trainscope.analysis.gpu_gaps import Gaps, find_gaps
from trainscope.analysis.sync_claims import claim_idle
from trainscope.analysis.thread_roles import thread_roles, works_for_loop
from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.trace.window import Column, OpKind, Window

__all__ = ["IdleCause", "IdlePieces", "IdleTimes", "find_idle"]


class IdleCause(IntEnum):
    """Why a GPU ran nothing; the module says what each means."""

    SYNC = 0
    LAUNCH = 1
    DATA = 2
    COPY = 3
    COMMUNICATION = 4
    CPU_BEFORE_LAUNCH = 5
    CPU_WORK = 6
    QUEUED = 7
    UNKNOWN = 8

    @property
    def group(self) -> str:
        """``sync``, ``launch``, ``data``, ``copy``, ``communication`` or ``other``."""
        return self.name.lower() if self < IdleCause.CPU_BEFORE_LAUNCH else "other"


@dataclass(frozen=True, eq=False)
class IdlePieces:
    """Stretches in which a device was idle for one cause, by device and then time."""

    start_ns: Column
    end_ns: Column
    device: Column
    step: Column
    """A place in the steps."""
    cause: Column
    """An ``IdleCause``."""
    sync: Column
    """A place in the syncs; -1 where none is to blame."""


@dataclass(frozen=True, eq=False)
class IdleTimes:
    """Busy and idle time; tables have a line for each device and a column for each step."""

    devices: tuple[int, ...]
    start_ns: Column
    """When the device was through with the steps before."""
    end_ns: Column
    busy_ns: Column
    """Time in which at least one op ran."""
    idle_ns: Column
    """``end_ns - start_ns - busy_ns``."""
    cause_ns: Column
    """Idle time by device, step and ``IdleCause``; over the causes it sums to ``idle_ns``."""
    pieces: IdlePieces
    latency_ns: int
    """From a launch to its op on an idle GPU: the median."""
    by_step: bool
    """False where the window has no steps, so that the one column is all of it."""


def find_idle(window: Window, steps: WindowSteps, syncs: Sequence[WindowSync]) -> IdleTimes:
    """Busy and idle time of each device in each step, the idle time split by cause.

    Without steps the window from the first op to the last is taken whole. ``syncs`` are those that
    ``find_syncs`` gave.
    """
    devices = tuple(int(device) for device in np.unique(window.gpu.device))
    count = max(len(steps), 1)
    shape = (len(devices), count)
    bounds = [_bounds(window, steps, device) for device in devices]
    busy_ns = np.zeros(shape, dtype=np.int64)
    cause_ns = np.zeros((*shape, len(IdleCause)), dtype=np.int64)
    serving = works_for_loop(thread_roles(window, steps))
    usable = np.array([i for i, s in enumerate(syncs) if serving[s.thread]], dtype=np.int64)
    cover = cover_of_cpu(window, serving)
    first_ns = _first_launches(window, steps)
    parts: list[Column] = []
    latencies = []
    for line, device in enumerate(devices):
        edges_ns = bounds[line]
        gaps = find_gaps(window, device, int(edges_ns[0, 0]), int(edges_ns[-1, 1]))
        claims = claim_idle(gaps, syncs, usable)
        latencies.append(gaps.latency_ns)
        busy_ns[line] = gaps.busy.before_ns(edges_ns[:, 1]) - gaps.busy.before_ns(edges_ns[:, 0])
        cuts = [edges_ns.ravel(), claims.start_ns, claims.end_ns, *cover.edges_ns]
        start_ns, end_ns, gap = _pieces(gaps, cuts)
        step = np.searchsorted(edges_ns[:, 0], start_ns, side="right") - 1
        inside = start_ns < edges_ns[np.maximum(step, 0), 1]
        start_ns, end_ns, gap, step = (x[inside] for x in (start_ns, end_ns, gap, step))
        sync = claims.at(start_ns)
        cause = _causes(window, gaps, gap, start_ns, sync, first_ns, cover.labels(start_ns))
        np.add.at(cause_ns[line], (step, cause), end_ns - start_ns)
        parts.append(_merged(start_ns, end_ns, np.full(len(step), device), step, cause, sync))
    pieces = np.concatenate(parts, axis=1) if parts else np.zeros((6, 0), dtype=np.int64)
    edges = np.array(bounds, dtype=np.int64).reshape(*shape, 2)
    return IdleTimes(
        devices=devices,
        start_ns=edges[..., 0],
        end_ns=edges[..., 1],
        busy_ns=busy_ns,
        idle_ns=edges[..., 1] - edges[..., 0] - busy_ns,
        cause_ns=cause_ns,
        pieces=IdlePieces(*pieces),
        latency_ns=int(np.median(latencies)) if latencies else 0,
        by_step=len(steps) > 0,
    )


def _bounds(window: Window, steps: WindowSteps, device: int) -> Column:
    """When each step's time on a device begins and ends, one line a step."""
    gpu = window.gpu
    mine = gpu.device == device
    if not len(steps):
        first_ns, end_ns = int(gpu.start_ns[mine].min()), int(gpu.end_ns[mine].max())
        return np.array([[first_ns, max(first_ns, end_ns)]], dtype=np.int64)
    step = steps.of_ops(window)
    last_ns = np.full(len(steps), np.iinfo(np.int64).min)
    known = mine & (step >= 0)
    np.maximum.at(last_ns, step[known], gpu.end_ns[known])
    edges_ns = np.zeros((len(steps), 2), dtype=np.int64)
    reached_ns = int(np.iinfo(np.int64).min)
    own_end_ns = steps.end_ns
    follows = steps.follows
    for place in range(len(steps)):
        first = place == 0 or not follows[place - 1]
        begin_ns = max(int(steps.start_ns[place]), reached_ns) if first else reached_ns
        reached_ns = max(begin_ns, int(last_ns[place]))
        if not follows[place]:
            reached_ns = max(reached_ns, int(own_end_ns[place]))
        edges_ns[place] = begin_ns, reached_ns
    return edges_ns


def _pieces(gaps: Gaps, cuts: Sequence[Column]) -> tuple[Column, Column, Column]:
    """The gaps cut at moments: start, end and the gap of each piece."""
    edges_ns = np.concatenate((gaps.start_ns, gaps.end_ns, gaps.called_ns))
    if not len(edges_ns):
        return edges_ns, edges_ns, edges_ns
    inside = [cut[_in_gaps(gaps, cut) >= 0] for cut in cuts]
    at_ns = np.unique(np.concatenate((edges_ns, *inside)))
    start_ns, end_ns = at_ns[:-1], at_ns[1:]
    gap = _in_gaps(gaps, start_ns)
    return start_ns[gap >= 0], end_ns[gap >= 0], gap[gap >= 0]


def _in_gaps(gaps: Gaps, time_ns: Column) -> Column:
    place = np.searchsorted(gaps.start_ns, time_ns, side="right") - 1
    inside = (place >= 0) & (time_ns < gaps.end_ns[np.maximum(place, 0)])
    return np.where(inside, place, -1)


def _causes(
    window: Window,
    gaps: Gaps,
    gap: Column,
    start_ns: Column,
    sync: Column,
    first_ns: Column,
    label: Column,
) -> Column:
    """The cause of each piece: what the module lists, from the last to the first."""
    op, called_ns = gaps.next_op[gap], gaps.called_ns[gap]
    calls, gpu = window.calls, window.gpu
    call = gaps.next_call[gap]
    began_ns = calls.start_ns[call] if len(calls) else call
    leads = (call < 0) | np.isin(began_ns, first_ns)
    cause = np.where(
        label >= 0, label, np.where(leads, IdleCause.CPU_BEFORE_LAUNCH, IdleCause.CPU_WORK)
    )
    if len(gpu):
        copying = (gpu.kind[op] == OpKind.COPY) & (op >= 0)
        arriving = (op >= 0) & (start_ns >= called_ns)
        cause = np.where(arriving, np.where(copying, IdleCause.COPY, IdleCause.LAUNCH), cause)
    cause = np.where((op >= 0) & (call < 0), IdleCause.UNKNOWN, cause)
    cause = np.where((call >= 0) & ~gaps.late[gap], IdleCause.QUEUED, cause)
    return np.where(sync >= 0, IdleCause.SYNC, cause)


def _first_launches(window: Window, steps: WindowSteps) -> Column:
    """When the first call of each step began that enqueued a GPU op."""
    if not len(steps):
        return np.zeros(0, dtype=np.int64)
    launches = np.isin(
        window.calls.correlation, window.gpu.correlation[window.gpu.correlation >= 0]
    )
    start_ns = window.calls.start_ns[launches]
    step = steps.at(start_ns)
    start_ns, step = start_ns[step >= 0], step[step >= 0]
    return start_ns[np.unique(step, return_index=True)[1]]


def _merged(*columns: Column) -> Column:
    """Pieces that touch and agree in all but their times, as one."""
    table = np.stack(columns)
    if table.shape[1] < 2:
        return table
    same = (table[2:, 1:] == table[2:, :-1]).all(axis=0) & (table[0, 1:] == table[1, :-1])
    first = np.concatenate(([True], ~same))
    last = np.concatenate((~same, [True]))
    merged = table[:, first]
    merged[1] = table[1, last]
    return merged
