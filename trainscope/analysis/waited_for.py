"""What the waits of a window waited for, and whether that was still running when they began."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.launched_by import calls_of_ops, ops_of_calls, rows_of, values_at
from trainscope.analysis.wait_calls import WaitCall
from trainscope.trace.window import Column, SyncKind, Window

__all__ = ["waited_for", "which_blocked"]

_SURELY_WAITED_NS = 20_000
"""A wait for an event of which nothing is known took at least so long if it blocked; one that
finds the event done takes a tenth of it."""

_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


def waited_for(
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


def which_blocked(
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
