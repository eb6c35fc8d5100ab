"""From a window to a ``Program``: what the CPU did between calls, what each call enqueued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainscope.analysis.intervals import union
from trainscope.analysis.launched_by import calls_of_ops, ops_of_calls
from trainscope.analysis.nesting import Around
from trainscope.analysis.replay.events import find_events
from trainscope.analysis.replay.program import ALL_LANES, Act, Item, Program
from trainscope.analysis.thread_roles import AUTOGRAD, thread_roles, works_for_loop
from trainscope.analysis.waits import WaitCall, Waits, find_waits
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.trace.window import Column, CopyKind, Memory, OpKind, Window

__all__ = ["READS", "build_program"]

READS = ("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense")
"""Operators that do nothing but bring a value to the CPU: without the read they are gone."""
_RANGE_WEIGHT, _FRAME_WEIGHT = 4.0, 0.15
"""What recording an annotation (which goes through Python) or a Python function costs, over what an
operator's costs."""
_FIXED_NS_PER_BOUNDARY = 100_000
"""CPU time with so few events in it is sleep or computation, which profiling hardly slows."""
_OWN_NS = 15_000
"""The most that a call which waits takes by itself."""
_LONGEST_GAP_NS = 10_000
_LONGEST_WAKE_NS = 60_000


@dataclass(frozen=True)
class _Stretch:
    """A step's time on the CPU."""

    start_ns: int
    end_ns: int


def build_program(window: Window, steps: WindowSteps, syncs: Sequence[WindowSync]) -> Program:
    """The program of the steps; sites are those of ``syncs`` within them, in their order."""
    return _Builder(window, steps, syncs).program()


class _Builder:
    def __init__(self, window: Window, steps: WindowSteps, syncs: Sequence[WindowSync]) -> None:
        self.window = window
        self.steps = steps
        inside = [sync for sync in syncs if sync.step >= 0]
        self.sites: list[WindowSite] = list(dict.fromkeys(sync.site for sync in inside))
        self._site_of = {site: place for place, site in enumerate(self.sites)}
        self._by_call: dict[int, WindowSync] = {sync.call: sync for sync in inside}
        self._by_copy: dict[int, WindowSync] = {
            sync.copy_call: sync for sync in inside if sync.copy_call >= 0
        }
        self._op_of = ops_of_calls(window)
        self._call_of = calls_of_ops(window)
        self._lanes = self._find_lanes()
        self._blocks = self._find_blocks()
        self._usual = _usual_latencies(window, self._call_of)
        self._queued_gap = self._gaps()
        self._events = find_events(window, self._lanes)
        roles = thread_roles(window, steps)
        self._loop_threads = works_for_loop(roles)
        self._autograd = np.array([role == AUTOGRAD for role in roles], dtype=bool)
        self._boundaries, self._weights = _boundaries(window, self._loop_threads)
        self._reads = self._read_operators(inside)
        self._all_waits: Waits = find_waits(window)
        self._waits = {int(call): place for place, call in enumerate(self._all_waits.call)}

    # ---- what there is ------------------------------------------------------------------------
    def _find_lanes(self) -> dict[tuple[int, int], int]:
        gpu = self.window.gpu
        pairs = sorted(set(zip(gpu.device.tolist(), gpu.stream.tolist(), strict=True)))
        return {pair: place for place, pair in enumerate(pairs)}

    def _find_blocks(self) -> dict[int, list[int]]:
        """Rows of the GPU ops of each call that enqueued more than one."""
        rows: dict[int, list[int]] = {}
        for op, call in enumerate(self._call_of.tolist()):
            if call >= 0:
                rows.setdefault(call, []).append(op)
        return rows

    def _gaps(self) -> np.ndarray:
        """For each op the time since the end of the one before on its stream; the median where it
        had not been waiting for it."""
        gpu = self.window.gpu
        gap = np.full(len(gpu), np.nan)
        launched_ns = np.where(
            self._call_of >= 0,
            self.window.calls.end_ns[np.maximum(self._call_of, 0)] if len(self.window.calls) else 0,
            -1,
        )
        for lane in self._lanes:
            rows = np.flatnonzero((gpu.device == lane[0]) & (gpu.stream == lane[1]))
            before_ns = np.maximum.accumulate(gpu.end_ns[rows])[:-1]
            since = gpu.start_ns[rows[1:]] - before_ns
            queued = launched_ns[rows[1:]] + self._usual < before_ns
            gap[rows[1:]] = np.where(queued & (since < _LONGEST_GAP_NS), since, np.nan)
        usual = float(np.nanmedian(gap)) if np.isfinite(gap).any() else 1_300.0
        return np.where(np.isfinite(gap), np.maximum(gap, 0.0), max(usual, 0.0))

    def _read_operators(self, syncs: Sequence[WindowSync]) -> list[tuple[int, int, int]]:
        """Start, end and site of each operator that only reads a value for a sync."""
        ops = self.window.ops
        if not syncs or not len(ops):
            return []
        around = Around(ops).path(
            np.array([sync.thread for sync in syncs]),
            np.array([sync.start_ns for sync in syncs]),
            np.array([sync.end_ns for sync in syncs]),
        )
        found = []
        for sync, path in zip(syncs, around, strict=True):
            rows = [row for row in path.tolist() if row >= 0]
            reads = [row for row in rows if self.window.names[int(ops.name_id[row])] in READS]
            if reads:
                row = reads[0]
                site = self._site_of[sync.site]
                found.append((int(ops.start_ns[row]), int(ops.end_ns[row]), site))
        return found

    # ---- putting it together ------------------------------------------------------------------
    def program(self) -> Program:
        window, steps = self.window, self.steps
        profiler = steps.found_by.startswith("ranges ProfilerStep")
        ends = steps.end_ns if profiler else steps.until_ns
        stretches = [
            _Stretch(int(start), int(end)) for start, end in zip(steps.start_ns, ends, strict=True)
        ]
        items: list[Item] = []
        for stretch in stretches:
            items += self._items(stretch)
        step_of_op = steps.of_ops(window)
        busiest = _busy_ns(window, np.flatnonzero(step_of_op >= 0))
        first_ns = stretches[0].start_ns if stretches else 0
        early = step_of_op < 0
        early &= window.gpu.start_ns < (stretches[-1].end_ns if stretches else 0)
        early &= (self._call_of < 0) | (
            window.calls.start_ns[np.maximum(self._call_of, 0)] < first_ns
            if len(window.calls)
            else True
        )
        backlog = []
        for device, stream in self._lanes:
            rows = early & (window.gpu.device == device) & (window.gpu.stream == stream)
            last = int(window.gpu.end_ns[rows].max()) if rows.any() else first_ns
            backlog.append(float(max(last - first_ns, 0)))
        return Program(
            items=tuple(items),
            steps=len(steps),
            lanes=tuple(self._lanes),
            sites=tuple(self.sites),
            recorded_ns=sum(stretch.end_ns - stretch.start_ns for stretch in stretches),
            gpu_ns=busiest,
            backlog_ns=tuple(backlog),
            pinned_bytes_per_ns=_pinned_rate(window),
            unresolved=self._events.unresolved,
        )

    def _items(self, stretch: _Stretch) -> list[Item]:
        calls = self.window.calls
        first = int(np.searchsorted(calls.start_ns, stretch.start_ns))
        last = int(np.searchsorted(calls.start_ns, stretch.end_ns))
        threads = self._loop_threads
        rows = [
            row
            for row in range(first, last)
            if calls.thread[row] >= 0 and threads[calls.thread[row]]
        ]
        marks: list[tuple[int, int, int]] = [
            (int(calls.start_ns[row]), int(calls.end_ns[row]), row) for row in rows
        ]
        for start_ns, end_ns, _site in self._reads:
            for cut in (start_ns, end_ns):
                if stretch.start_ns <= cut < stretch.end_ns:
                    marks.append((cut, cut, -1))
        marks.sort()
        marks.append((stretch.end_ns, stretch.end_ns, -1))
        items: list[Item] = []
        at = stretch.start_ns
        for start_ns, end_ns, call in marks:
            items += self._item(at, start_ns, min(end_ns, stretch.end_ns), call)
            at = max(at, min(end_ns, stretch.end_ns))
        return items

    def _item(self, at: int, start_ns: int, end_ns: int, call: int) -> list[Item]:
        """The CPU time from ``at`` to a call, and the call."""
        gap = max(start_ns - at, 0)
        boundaries = self._count(at, start_ns)
        within = self._within(at, start_ns, call)
        fixed = 0.0
        cpu = float(gap)
        if gap > _FIXED_NS_PER_BOUNDARY * max(boundaries, 1.0):
            fixed, cpu, boundaries = cpu, 0.0, 0.0
        base: dict[str, object] = {"fixed_ns": fixed, "within": within, "call": call}
        if call >= 0:
            base["backward"] = bool(self._autograd[self.window.calls.thread[call]])
        if call < 0:
            return [Item(cpu, boundaries, **base)] if gap else []  # type: ignore[arg-type]
        took = float(end_ns - start_ns)
        boundaries += 2.0
        op = int(self._op_of[call])
        sync = self._by_call.get(call)
        if op >= 0:
            return self._launch(cpu, boundaries, base, took, call, op)
        if sync is not None or call in self._waits:
            return self._wait(cpu, boundaries, base, took, call, sync)
        event = self._events.recorded.get(call)
        if event is not None:
            return [Item(cpu + took, boundaries, act=Act.RECORD, lane=event, event=call, **base)]  # type: ignore[arg-type]
        waiting = self._events.waited.get(call)
        if waiting is not None:
            lane, record = waiting
            return [
                Item(cpu + took, boundaries, act=Act.STREAM_WAIT, lane=lane, event=record, **base)  # type: ignore[arg-type]
            ]
        return [Item(cpu + took, boundaries, **base)]  # type: ignore[arg-type]

    def _launch(
        self,
        cpu: float,
        boundaries: float,
        base: Mapping[str, object],
        took: float,
        call: int,
        op: int,
    ) -> list[Item]:
        gpu = self.window.gpu
        rows = self._blocks.get(call, [op])
        start = int(gpu.start_ns[rows].min())
        end = int(gpu.end_ns[rows].max())
        lanes = [self._lanes[int(gpu.device[r]), int(gpu.stream[r])] for r in rows]
        sync = self._by_copy.get(call) or self._by_call.get(call)
        pageable = gpu.host_memory[op] == Memory.PAGEABLE
        host_copy = gpu.kind[op] == OpKind.COPY and gpu.copy_kind[op] in (
            CopyKind.H2D,
            CopyKind.D2H,
        )
        held = bool(host_copy and pageable and sync is not None)
        site = self._site_of[sync.site] if sync is not None and sync.step >= 0 else -1
        launch = Item(
            cpu + (min(took, _OWN_NS) if held else took),
            boundaries,
            act=Act.LAUNCH,
            lane=lanes[0],
            length_ns=float(end - start),
            gap_ns=float(self._queued_gap[op]),
            latency_ns=self._usual,
            also=tuple(sorted(set(lanes) - {lanes[0]})),
            site=site,
            bytes=int(gpu.bytes[op]) if host_copy else 0,
            op=op,
            **base,  # type: ignore[arg-type]
        )
        if not held:
            return [launch]
        wake = float(np.clip(self.window.calls.end_ns[call] - end, 0, _LONGEST_WAKE_NS))
        wait = Item(
            0.0, 0.0, act=Act.WAIT, lane=lanes[0], wake_ns=wake, site=site,
            within=int(base["within"]), call=call,  # type: ignore[call-overload]
        )  # fmt: skip
        return [launch, wait]

    def _wait(
        self,
        cpu: float,
        boundaries: float,
        base: Mapping[str, object],
        took: float,
        call: int,
        sync: WindowSync | None,
    ) -> list[Item]:
        waits = self._all_waits
        place = self._waits.get(call, -1)
        blocked = bool(waits.blocked[place]) if place >= 0 else False
        kind = int(waits.wait_call[place]) if place >= 0 else int(WaitCall.STREAM)
        device, stream = (
            (int(waits.device[place]), int(waits.stream[place])) if place >= 0 else (-1, -1)
        )
        lane = self._lanes.get((device, stream), ALL_LANES)
        event = -1
        wake, own = 0.0, min(took, _OWN_NS)
        if kind == WaitCall.EVENT:
            record = self._events.synced.get(call)
            if record is not None:
                event = record
            elif blocked:
                event = -1
        if kind in (WaitCall.DEVICE, WaitCall.FREE):
            lane = ALL_LANES
        if blocked:
            done = self._done_ns(call, place)
            wake = float(np.clip(self.window.calls.end_ns[call] - done, 0, _LONGEST_WAKE_NS))
            own = min(own, 6_000.0)
        if kind == WaitCall.FREE and not blocked:
            return [Item(cpu + took, boundaries, **base)]  # type: ignore[arg-type]
        site = self._site_of[sync.site] if sync is not None else -1
        return [
            Item(
                cpu + own, boundaries, act=Act.WAIT, lane=lane, event=event, wake_ns=wake,
                site=site, **base,  # type: ignore[arg-type]
            )
        ]  # fmt: skip

    def _done_ns(self, call: int, place: int) -> int:
        """When what a blocked wait waited for was done: its copy, or the last op ended by then."""
        waits, gpu = self._all_waits, self.window.gpu
        copy = int(waits.copy_op[place])
        if copy >= 0:
            return int(gpu.end_ns[copy])
        end = int(self.window.calls.end_ns[call])
        ended = gpu.end_ns[gpu.end_ns <= end]
        return int(ended.max()) if len(ended) else end

    def _count(self, from_ns: int, until_ns: int) -> float:
        """Beginnings and ends of recorded events in a stretch, by what recording them costs."""
        if until_ns <= from_ns:
            return 0.0
        first, last = np.searchsorted(self._boundaries, (from_ns, until_ns))
        return float(self._weights[last] - self._weights[first])

    def _within(self, at: int, start_ns: int, call: int) -> int:
        middle = (at + start_ns) // 2 if start_ns > at else start_ns
        for begin, end, site in self._reads:
            if begin <= middle <= end and (call < 0 or begin <= start_ns <= end):
                return site
        return -1


def _usual_latencies(window: Window, call_of: Column) -> float:
    """From the end of a launch to the start of its op where the stream was idle, in ns."""
    gpu, calls = window.gpu, window.calls
    found = []
    for device, stream in sorted(set(zip(gpu.device.tolist(), gpu.stream.tolist(), strict=True))):
        rows = np.flatnonzero((gpu.device == device) & (gpu.stream == stream))
        before_ns = np.concatenate(([0], np.maximum.accumulate(gpu.end_ns[rows])[:-1]))
        call = call_of[rows]
        known = call >= 0
        known &= gpu.kind[rows] == OpKind.KERNEL
        idle = known & (before_ns < np.where(known, calls.start_ns[np.maximum(call, 0)], 0))
        found.append(gpu.start_ns[rows[idle]] - calls.end_ns[call[idle]])
    every = np.concatenate(found) if found else np.empty(0)
    return float(np.clip(np.median(every), -5_000, 20_000)) if len(every) else 1_000.0


def _boundaries(window: Window, threads: np.ndarray) -> tuple[Column, np.ndarray]:
    """When events of the loop's threads begin or end, and the running sum of their weights."""
    times, weights = [], []
    for spans, weight in (
        (window.ops, 1.0),
        (window.ranges, _RANGE_WEIGHT),
        (window.frames, _FRAME_WEIGHT),
    ):
        if len(spans) and len(threads):
            mine = (spans.thread >= 0) & threads[np.maximum(spans.thread, 0)]
            for moment in (spans.start_ns[mine], spans.end_ns[mine]):
                times.append(moment)
                weights.append(np.full(len(moment), weight))
    if not times:
        return np.empty(0, dtype=np.int64), np.zeros(1)
    moments = np.concatenate(times)
    order = np.argsort(moments, kind="stable")
    return moments[order], np.concatenate(([0.0], np.cumsum(np.concatenate(weights)[order])))


def _busy_ns(window: Window, ops: Column) -> int:
    """GPU time of the ops on the busiest device, overlaps counted once."""
    gpu = window.gpu
    busy = [
        union(gpu.start_ns[mine], gpu.end_ns[mine])
        for device in np.unique(gpu.device[ops])
        if len(mine := ops[gpu.device[ops] == device])
    ]
    return max((int((each.end_ns - each.start_ns).sum()) for each in busy), default=0)


_SEEN_BYTES = 1 << 20
_PCIE_5 = ("H100", "H200", "H20", "GH200", "B100", "B200", "B300", "RTX 50", "RTX PRO 6000")
_PCIE_5_BYTES_PER_NS, _PCIE_4_BYTES_PER_NS = 55.0, 25.0


def _pinned_rate(window: Window) -> float:
    """Bytes per ns between pinned memory and the GPU: of large copies seen, else of its bus."""
    gpu = window.gpu
    seen = (gpu.host_memory == Memory.PINNED) & (gpu.bytes >= _SEEN_BYTES)
    length_ns = gpu.end_ns[seen] - gpu.start_ns[seen]
    if (length_ns > 0).any():
        return float(np.median(gpu.bytes[seen][length_ns > 0] / length_ns[length_ns > 0]))
    fast = any(part in name for name in window.devices for part in _PCIE_5)
    return _PCIE_5_BYTES_PER_NS if fast else _PCIE_4_BYTES_PER_NS
