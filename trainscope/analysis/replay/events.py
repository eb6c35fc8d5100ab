"""CUDA events of a window: which call recorded on which stream what another waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainscope.analysis.launched_by import ops_of_calls, rows_of
from trainscope.analysis.waits import call_name
from trainscope.trace.window import SyncKind, Window

__all__ = ["Events", "find_events"]

_RECORD = ("cudaEventRecord", "cuEventRecord", "cudaEventRecordWithFlags")
_STREAM_WAIT = ("cudaStreamWaitEvent", "cuStreamWaitEvent")
_SYNC = ("cudaEventSynchronize", "cuEventSynchronize")


@dataclass(frozen=True)
class Events:
    """Calls by their rows in ``Window.calls``; lanes are places of streams."""

    recorded: dict[int, int]
    """Recording call: the lane that it recorded."""
    waited: dict[int, tuple[int, int]]
    """Call of a stream wait: the lane that waits, and the recording call."""
    synced: dict[int, int]
    """Call of an event wait of the CPU: the recording call."""
    unresolved: int
    """Stream waits of which one of these is not known."""


def find_events(window: Window, lanes: Mapping[tuple[int, int], int]) -> Events:
    """Resolve the waits for events, where CUDA's record of waits or the order of calls tells.

    The recording call is the one that CUDA names, else the last on the same thread with no launch
    in between, which is how ``wait_stream`` does it. Its stream is the one that CUDA names, else
    the only other one there is. With one stream there is nothing to wait for.
    """
    names = [call_name(name[:200]) for name in window.names]
    calls, syncs = window.calls, window.syncs
    kind = np.array(
        [
            1 if name in _RECORD else 2 if name in _STREAM_WAIT else 3 if name in _SYNC else 0
            for name in names
        ]
        or [0]
    )
    record_of = rows_of(calls.correlation, syncs.correlation)
    launches = ops_of_calls(window) >= 0
    recorded: dict[int, int] = {}
    waited: dict[int, tuple[int, int]] = {}
    synced: dict[int, int] = {}
    unresolved = 0
    last: dict[int, int] = {}
    for call in range(len(calls)):
        thread = int(calls.thread[call])
        what = int(kind[calls.name_id[call]])
        if launches[call]:
            last.pop(thread, None)
        if what == 1:
            last[thread] = call
        elif what in (2, 3) and len(lanes) > 1:
            row = int(record_of[call])
            named = -1
            if row >= 0 and syncs.event_correlation[row] >= 0:
                found = rows_of(syncs.event_correlation[row : row + 1], calls.correlation)
                named = int(found[0])
            recording = named if named >= 0 else last.get(thread, -1)
            device = int(syncs.device[row]) if row >= 0 else -1
            lane = None
            if row >= 0 and syncs.kind[row] == SyncKind.STREAM_WAIT:
                lane = lanes.get((device, int(syncs.stream[row])))
            source = _source(window, lanes, row, lane)
            if recording < 0 or source is None:
                unresolved += what == 2
                continue
            if what == 3:
                recorded[recording], synced[call] = source, recording
            elif lane is None:
                unresolved += row < 0
            else:
                recorded[recording], waited[call] = source, (lane, recording)
    return Events(recorded, waited, synced, unresolved)


def _source(
    window: Window, lanes: Mapping[tuple[int, int], int], row: int, waiting: int | None
) -> int | None:
    """The lane that the event was recorded on."""
    if row >= 0 and window.syncs.event_stream[row] >= 0:
        device = int(window.syncs.device[row])
        return lanes.get((device, int(window.syncs.event_stream[row])))
    others = [lane for lane in lanes.values() if lane != waiting]
    return others[0] if len(others) == 1 and waiting is not None else None
