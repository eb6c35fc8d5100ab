"""CUDA events of a window: which call recorded on which stream what another waits for.

CUDA 12.9 and later no longer tell which record a wait is for, so the order of calls must, and the
times on the GPU must bear it out: what waited cannot have gone on before what it waited for ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.launched_by import rows_of
from trainscope.analysis.nesting import rows_by_thread
from trainscope.analysis.replay.gpu_side import GpuSide
from trainscope.analysis.wait_calls import call_name
from trainscope.trace.window import Column, SyncKind, Window

__all__ = ["Events", "find_events"]

_NONE, _RECORD, _STREAM_WAIT, _SYNC = range(4)
_CALLS = {
    "EventRecord": _RECORD,
    "EventRecordWithFlags": _RECORD,
    "StreamWaitEvent": _STREAM_WAIT,
    "EventSynchronize": _SYNC,
}
_PREFIXES = ("cuda", "hip", "cu")
_SLACK_NS = 2_000
"""By how much the clocks of CPU and streams may disagree."""
_LOOKED_AT = 64
"""Records before a wait of which one may be the one it is for."""


@dataclass(frozen=True)
class Events:
    """Calls by their rows in ``Window.calls``; lanes are places of streams."""

    recorded: dict[int, int]
    """Recording call: the lane that it recorded."""
    waited: dict[int, tuple[int, int]]
    """Call of a stream wait: the lane that waits, and the recording call."""
    synced: dict[int, int]
    """Call of an event wait of the CPU: the recording call."""
    guessed: int
    """Stream waits in the steps where the order of calls leaves a choice, and times decided."""
    unresolved: int
    """Stream waits in the steps of which it is not known what they wait for."""


@dataclass
class _Thread:
    """What a CPU thread did so far."""

    last_record: int = -1
    """Its last recording call with no launch since; -1 for none."""
    lanes: list[int] = field(default_factory=list)
    """Those it launched into, each once, the latest last."""


@dataclass(frozen=True)
class _Record:
    """A recording call."""

    call: int
    lanes: tuple[int, ...]
    """Those its thread had launched into, the latest first."""
    last_op: tuple[int, ...]
    """The last op of each lane then; -1 for none."""


def find_events(window: Window, side: GpuSide, in_steps: NDArray[np.bool_]) -> Events:
    """Resolve the waits for events; ``in_steps`` tells of each call whether it will be replayed.

    The recording call is the one that CUDA names, else the last on the same thread with no launch
    in between (so ``wait_stream`` does it), else the latest whose work was done before what waited
    went on. Its stream is the one that CUDA names, else that which was last launched into.
    """
    return _Matching(window, side, in_steps).events()


class _Matching:
    """Goes through the calls once, in time order."""

    def __init__(self, window: Window, side: GpuSide, in_steps: NDArray[np.bool_]) -> None:
        self._window, self._side, self._in_steps = window, side, in_steps
        kinds = np.array([*(_kind(name) for name in window.names), _NONE])
        name_id = window.calls.name_id
        named = (name_id >= 0) & (name_id < len(window.names))
        self._kind = kinds[np.where(named, name_id, len(window.names))]
        self._sync_row = rows_of(window.calls.correlation, window.syncs.correlation)
        self._named = rows_of(window.syncs.event_correlation, window.calls.correlation)
        self._next_launch = _next_launches(window, side)
        self._queues = [_queue(side, lane) for lane in range(len(side.lanes))]
        self._records: dict[int, _Record] = {}
        self._recorded: dict[int, int] = {}
        self._waited: dict[int, tuple[int, int]] = {}
        self._synced: dict[int, int] = {}
        self._guessed = self._unresolved = 0

    def events(self) -> Events:
        side, threads = self._side, dict[int, _Thread]()
        last_op = [-1] * len(side.lanes)
        for call in np.flatnonzero((self._kind > _NONE) | (side.op_of_call >= 0)).tolist():
            thread = threads.setdefault(int(self._window.calls.thread[call]), _Thread())
            op, kind = int(side.op_of_call[call]), int(self._kind[call])
            if op >= 0:
                lane = int(side.lane_of_op[op])
                last_op[lane] = side.blocks[call][-1]
                thread.last_record = -1
                thread.lanes = [*(each for each in thread.lanes if each != lane), lane]
            elif kind == _RECORD:
                thread.last_record = call
                self._records[call] = _Record(call, tuple(reversed(thread.lanes)), tuple(last_op))
            elif kind == _STREAM_WAIT and len(side.lanes) > 1:
                self._stream_wait(call, thread)
            elif kind == _SYNC:
                self._sync(call, thread)
        return Events(self._recorded, self._waited, self._synced, self._guessed, self._unresolved)

    def _stream_wait(self, call: int, thread: _Thread) -> None:
        row = int(self._sync_row[call])
        waiting = self._waiting_lane(call, row)
        if waiting is None:
            self._unresolved += int(self._in_steps[call] and row < 0)
            return  # a stream that nothing is launched into needs no wait
        until_ns = self._goes_on_ns(waiting, call)
        for record, source, sure in self._candidates(row, waiting, thread):
            if source == waiting:
                return
            if self._done_ns(record, source) <= until_ns + _SLACK_NS:
                self._recorded[record.call] = source
                self._waited[call] = waiting, record.call
                self._guessed += int(self._in_steps[call] and not sure)
                return
        self._unresolved += int(self._in_steps[call])

    def _sync(self, call: int, thread: _Thread) -> None:
        row = int(self._sync_row[call])
        until_ns = int(self._window.calls.end_ns[call])
        for record, source, _ in self._candidates(row, None, thread):
            if self._done_ns(record, source) <= until_ns + _SLACK_NS:
                self._recorded[record.call] = source
                self._synced[call] = record.call
                return

    def _candidates(
        self, row: int, waiting: int | None, thread: _Thread
    ) -> Iterator[tuple[_Record, int, bool]]:
        """Records and lanes that a wait may be for, the likeliest first, and whether it is sure."""
        syncs = self._window.syncs
        stream = int(syncs.event_stream[row]) if row >= 0 else -1
        told = self._side.lanes.get((int(syncs.device[row]), stream)) if stream >= 0 else None
        named = self._records.get(int(self._named[row])) if row >= 0 else None
        near = self._records.get(thread.last_record)
        first = named or near
        two = len(self._side.lanes) <= 2
        if first is not None:
            for lane in (told,) if told is not None else self._sources(first, waiting):
                yield first, lane, told is not None or two
        if named is not None:
            return
        for record in islice(reversed(self._records.values()), _LOOKED_AT):
            if record is first:
                continue
            lanes = (told,) if told is not None else self._sources(record, waiting)[:1]
            for lane in lanes:
                yield record, lane, False

    def _sources(self, record: _Record, waiting: int | None) -> list[int]:
        """Lanes that a record may be of."""
        lanes = [lane for lane in record.lanes if lane != waiting]
        others = [lane for lane in range(len(self._side.lanes)) if lane not in (*lanes, waiting)]
        return lanes + (others if not lanes else [])

    def _waiting_lane(self, call: int, row: int) -> int | None:
        """The lane that waits: as CUDA says, else the one that its thread launches into next."""
        syncs = self._window.syncs
        if row >= 0:
            is_wait = syncs.kind[row] == SyncKind.STREAM_WAIT
            place = (int(syncs.device[row]), int(syncs.stream[row]))
            return self._side.lanes.get(place) if is_wait else None
        after = int(self._next_launch[call])
        return int(self._side.lane_of_op[self._side.op_of_call[after]]) if after >= 0 else None

    def _goes_on_ns(self, lane: int, call: int) -> int:
        """When the next op began that was enqueued in a lane after a call."""
        calls, ops = self._queues[lane]
        place = int(np.searchsorted(calls, call))
        if place >= len(calls):
            return int(np.iinfo(np.int64).max) - _SLACK_NS
        return int(self._window.gpu.start_ns[ops[place]])

    def _done_ns(self, record: _Record, lane: int) -> int:
        op = record.last_op[lane]
        return int(self._window.gpu.end_ns[op]) if op >= 0 else -1


def _kind(name: str) -> int:
    name = call_name(name[:200])
    prefix = next((each for each in _PREFIXES if name.startswith(each)), "")
    return _CALLS.get(name[len(prefix) :], _NONE) if prefix else _NONE


def _queue(side: GpuSide, lane: int) -> tuple[Column, Column]:
    """The calls that enqueued into a lane, in order, and their first ops."""
    ops = np.flatnonzero((side.lane_of_op == lane) & (side.call_of_op >= 0))
    ops = ops[np.argsort(side.call_of_op[ops], kind="stable")]
    return side.call_of_op[ops], ops


def _next_launches(window: Window, side: GpuSide) -> Column:
    """For each call the next launch on its thread; -1 for none."""
    found = np.full(len(window.calls), -1, dtype=np.int64)
    for mine in rows_by_thread(window.calls.thread):
        launch = mine[side.op_of_call[mine] >= 0]
        place = np.searchsorted(launch, mine, side="right")
        has = place < len(launch)
        found[mine[has]] = launch[place[has]]
    return found
