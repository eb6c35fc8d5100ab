"""Calls of a window in which a CPU thread waits for the GPU, as columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.launched_by import calls_of_ops, ops_of_calls, rows_of, values_at
from trainscope.analysis.nesting import Around
from trainscope.trace.window import Column, CopyKind, Memory, OpKind, SyncKind, Window

__all__ = ["WaitCall", "Waits", "call_name", "find_waits"]

_VERSION = re.compile(r"(?:_pt[sd][zs])?(?:_v\d+)?(?:_pt[sd][zs])?$")
_APART_NS = 50_000
"""Where operators are not recorded, a wait so soon after a copy is the copy's."""

_SURELY_WAITED_NS = 20_000
"""A wait for an event of which nothing is known took at least so long if it blocked; one that
finds the event done takes a tenth of it."""

_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


class WaitCall(IntEnum):
    """Which call it is that may wait."""

    NONE = 0
    STREAM = 1
    EVENT = 2
    DEVICE = 3
    COPY = 4
    """A copy that waits by itself: a plain ``cudaMemcpy``."""
    COPY_ASYNC = 5
    """``cudaMemcpyAsync``: waits only where the host memory is pageable."""
    FREE = 6
    """``cudaFree``: waits for the device before memory goes back."""


_CALLS = {
    "cudaStreamSynchronize": WaitCall.STREAM,
    "cuStreamSynchronize": WaitCall.STREAM,
    "hipStreamSynchronize": WaitCall.STREAM,
    "cudaEventSynchronize": WaitCall.EVENT,
    "cuEventSynchronize": WaitCall.EVENT,
    "hipEventSynchronize": WaitCall.EVENT,
    "cudaDeviceSynchronize": WaitCall.DEVICE,
    "cuCtxSynchronize": WaitCall.DEVICE,
    "hipDeviceSynchronize": WaitCall.DEVICE,
    "cudaFree": WaitCall.FREE,
    "hipFree": WaitCall.FREE,
}
_COPY = re.compile(r"(?:cuda|hip)Memcpy(?!Peer)\w*|cuMemcpy(?!Peer)\w*")


@dataclass(frozen=True, eq=False)
class Waits:
    """Waits in the order of their starts; a copy and the wait that follows in its operator are one.

    ``call``, ``copy_call`` are rows of ``Window.calls``, ``copy_op`` of ``Window.gpu``, ``inside``
    the innermost operator's of ``Window.ops``; -1 for none.
    """

    start_ns: Column
    end_ns: Column
    thread: Column
    wait_call: Column
    """A ``WaitCall``."""
    call: Column
    copy_call: Column
    copy_op: Column
    device: Column
    stream: Column
    inside: Column
    blocked: NDArray[np.bool_]
    """Whether the GPU still had work that it waits for when it began; else it returned at once."""

    def __len__(self) -> int:
        return len(self.start_ns)


def call_name(name: str) -> str:
    """The name of a runtime call without the version that nsys appends."""
    return _VERSION.sub("", name)


def find_waits(window: Window) -> Waits:
    """Every wait of a CPU thread: for a stream, an event, the device, or in a copy.

    A ``cudaMemcpyAsync`` that no wait follows counts where it was held until the GPU came to it,
    ``cudaFree`` where it blocked.
    """
    calls, gpu = window.calls, window.gpu
    kinds = np.array([_wait_call(name) for name in window.names] or [0], dtype=np.int64)
    known = (calls.name_id >= 0) & (calls.name_id < len(window.names))
    kind = np.where(known, kinds[np.where(known, calls.name_id, 0)], 0)
    rows = np.flatnonzero((kind > 0) & (calls.thread >= 0))
    rows = rows[np.lexsort((rows, calls.thread[rows]))]
    kind = kind[rows]
    thread, start_ns, end_ns = calls.thread[rows], calls.start_ns[rows], calls.end_ns[rows]
    inside = Around(window.ops).innermost(thread, start_ns, end_ns)
    op = ops_of_calls(window)[rows]
    is_copy = op >= 0
    if len(gpu):
        is_copy &= gpu.kind[np.maximum(op, 0)] == OpKind.COPY
    copies = is_copy & np.isin(kind, (WaitCall.COPY, WaitCall.COPY_ASYNC))

    joined = np.zeros(len(rows), dtype=bool)  # a stream wait that belongs to the copy before it
    near = np.where(
        inside[1:] >= 0,
        inside[1:] == inside[:-1],
        (inside[:-1] < 0) & (start_ns[1:] - end_ns[:-1] < _APART_NS),
    )
    joined[1:] = (kind[1:] == WaitCall.STREAM) & copies[:-1] & (thread[1:] == thread[:-1]) & near
    taken = np.zeros(len(rows), dtype=bool)
    taken[:-1] = joined[1:]

    first = np.arange(len(rows)) - joined
    copy_call = np.where(copies[first], rows[first], -1) if len(rows) else rows
    copy_op = np.where(copies[first], op[first], -1) if len(rows) else rows
    device, stream = _waited_for(window, rows, kind, copy_op)
    began_ns = start_ns[first]
    blocked, held = _blocked(window, rows, kind, copy_op, began_ns, device, stream)
    pageable = values_at(gpu.host_memory, copy_op) != Memory.PINNED
    moved = np.isin(values_at(gpu.copy_kind, copy_op), (CopyKind.H2D, CopyKind.D2H))
    counts = np.isin(kind, (WaitCall.STREAM, WaitCall.EVENT, WaitCall.DEVICE))
    counts |= (kind == WaitCall.COPY) & (values_at(gpu.copy_kind, copy_op) != CopyKind.D2D)
    counts |= (kind == WaitCall.COPY_ASYNC) & copies & pageable & moved & held & blocked
    counts |= (kind == WaitCall.FREE) & blocked
    keep = np.flatnonzero(counts & ~taken)
    keep = keep[np.argsort(began_ns[keep], kind="stable")]
    return Waits(
        start_ns=began_ns[keep],
        end_ns=end_ns[keep],
        thread=thread[keep],
        wait_call=kind[keep],
        call=rows[keep],
        copy_call=copy_call[keep],
        copy_op=copy_op[keep],
        device=device[keep],
        stream=stream[keep],
        inside=inside[keep],
        blocked=blocked[keep],
    )


def _wait_call(name: str) -> int:
    name = call_name(name[:200])
    if name in _CALLS:
        return _CALLS[name]
    if _COPY.fullmatch(name):
        return WaitCall.COPY_ASYNC if "Async" in name else WaitCall.COPY
    return WaitCall.NONE


def _waited_for(
    window: Window, rows: Column, kind: Column, copy_op: Column
) -> tuple[Column, Column]:
    """Device and stream of each wait: of its copy, else as CUDA says, else of the last launch."""
    calls, gpu, syncs = window.calls, window.gpu, window.syncs
    device, stream = values_at(gpu.device, copy_op), values_at(gpu.stream, copy_op)
    record = rows_of(calls.correlation[rows], syncs.correlation)
    open_ones = (copy_op < 0) & (record >= 0)
    device = np.where(open_ones, values_at(syncs.device, record), device)
    stream = np.where(open_ones, values_at(syncs.stream, record), stream)
    guess = np.flatnonzero((copy_op < 0) & (record < 0) & (kind != WaitCall.EVENT))
    launch = np.flatnonzero(ops_of_calls(window) >= 0)
    for thread in np.unique(calls.thread[rows[guess]]):
        mine = guess[calls.thread[rows[guess]] == thread]
        launches = launch[calls.thread[launch] == thread]
        if len(launches):
            place = np.searchsorted(launches, rows[mine]) - 1
            op = np.where(place >= 0, ops_of_calls(window)[launches[np.maximum(place, 0)]], -1)
            device[mine], stream[mine] = values_at(gpu.device, op), values_at(gpu.stream, op)
    stream = np.where(np.isin(kind, (WaitCall.DEVICE, WaitCall.FREE)), -1, stream)
    return device, stream


def _blocked(
    window: Window,
    rows: Column,
    kind: Column,
    copy_op: Column,
    began_ns: Column,
    device: Column,
    stream: Column,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether work waited for was unfinished when each began, and whether the call saw its copy."""
    calls, gpu = window.calls, window.gpu
    launched = calls_of_ops(window)
    enqueued_ns = np.where(launched >= 0, values_at(calls.start_ns, launched), gpu.start_ns)
    until_ns, event_device, event_stream = _event_limits(window, rows, kind, began_ns)
    device = np.where(event_device >= 0, event_device, device)
    stream = np.where(event_stream >= 0, event_stream, stream)
    last_ns = _last_end_ns(window, enqueued_ns, device, stream, until_ns)
    blocked = last_ns > began_ns
    vague = (kind == WaitCall.EVENT) & (stream < 0)
    blocked &= ~vague | (calls.end_ns[rows] - began_ns >= _SURELY_WAITED_NS)
    held = (copy_op >= 0) & (values_at(gpu.start_ns, copy_op) < calls.end_ns[rows])
    return blocked, held


def _last_end_ns(
    window: Window, enqueued_ns: Column, device: Column, stream: Column, until_ns: Column
) -> Column:
    """When the last op ended of those enqueued before a moment on a device and stream, or on all.

    -1 where there is none.
    """
    gpu = window.gpu
    found = np.full(len(until_ns), -1, dtype=np.int64)
    if not len(gpu) or not len(until_ns):
        return found
    streams = np.unique(gpu.stream)

    def lane(device: Column, stream: Column) -> Column:
        place = np.searchsorted(streams, stream) + 1
        return np.where(stream >= 0, place, 0) + (device + 1) * (len(streams) + 2)

    nowhere = np.full(len(gpu), -1, dtype=np.int64)
    whole = (stream < 0).astype(np.int64) + (device < 0)
    for level, of_op in enumerate(
        (lane(gpu.device, gpu.stream), lane(gpu.device, nowhere), lane(nowhere, nowhere))
    ):
        asked = np.flatnonzero(whole == level)
        if not len(asked):
            continue
        order = np.lexsort((enqueued_ns, of_op))  # the ops of each lane side by side
        of_wait = lane(device[asked], stream[asked])
        begin, end = (np.searchsorted(of_op[order], of_wait, side=side) for side in _SIDES)
        ends_ns = gpu.end_ns[order]
        for first in np.unique(begin[end > begin]):
            mine = (begin == first) & (end > begin)
            ops = slice(first, end[mine][0])
            latest_ns = np.maximum.accumulate(ends_ns[ops])
            before = np.searchsorted(enqueued_ns[order[ops]], until_ns[asked[mine]]) - 1
            found[asked[mine]] = np.where(before >= 0, latest_ns[np.maximum(before, 0)], -1)
    return found


def _event_limits(
    window: Window, rows: Column, kind: Column, began_ns: Column
) -> tuple[Column, Column, Column]:
    """Up to which moment of enqueuing each waits, and an event's device and stream if known."""
    calls, syncs = window.calls, window.syncs
    none = np.full(len(rows), -1, dtype=np.int64)
    record = np.where(
        kind == WaitCall.EVENT, rows_of(calls.correlation[rows], syncs.correlation), none
    )
    is_event = values_at(syncs.kind, record) == SyncKind.EVENT
    recorded = rows_of(values_at(syncs.event_correlation, record), calls.correlation)
    known = is_event & (recorded >= 0)
    until_ns = np.where(known, values_at(calls.start_ns, recorded), began_ns)
    return (
        until_ns,
        np.where(is_event, values_at(syncs.device, record), none),
        np.where(is_event, values_at(syncs.event_stream, record), none),
    )
