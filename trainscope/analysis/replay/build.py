"""From a window to a ``Program``: what the CPU did between calls, what each call enqueued."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.communication import collectives
from trainscope.analysis.replay.cpu_side import boundaries, loader_waits, reads
from trainscope.analysis.replay.events import find_events
from trainscope.analysis.replay.gpu_side import GpuSide, gpu_side, inner_gap_ns, pinned_rate
from trainscope.analysis.replay.other_work import backlog_ns, unfollowed_ns
from trainscope.analysis.replay.program import ALL_LANES, Act, Item, Program, Workers
from trainscope.analysis.replay.rank_waits import rank_waits_ns
from trainscope.analysis.replay.shared_gpu import late_share
from trainscope.analysis.thread_roles import AUTOGRAD, thread_roles, works_for_loop
from trainscope.analysis.wait_calls import WaitCall
from trainscope.analysis.waits import find_waits
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.trace.window import Column, CopyKind, Memory, OpKind, Window

__all__ = ["build_program"]

_OWN_NS = 15_000
"""The most that a call which waits takes by itself."""
_OWN_BLOCKED_NS = 6_000
_LONGEST_WAKE_NS = 60_000


def build_program(window: Window, steps: WindowSteps, syncs: Sequence[WindowSync]) -> Program:
    """The program of the steps; sites are those of ``syncs`` within them, in their order.

    There is at least one step.
    """
    return _Builder(window, steps, syncs).program()


@dataclass(frozen=True)
class _Before:
    """The CPU time that leads up to a call."""

    cpu_ns: float
    boundaries: float
    fixed_ns: float
    within: int
    backward: bool
    call: int

    def item(self, more_ns: float, act: Act = Act.NONE, **rest: object) -> Item:
        """This time and ``more_ns`` in the call itself, then an act."""
        return Item(
            self.cpu_ns + more_ns, self.boundaries, fixed_ns=self.fixed_ns, call_ns=more_ns,
            within=self.within, backward=self.backward, call=self.call, act=act,
            **rest,  # type: ignore[arg-type]
        )  # fmt: skip


class _Builder:
    def __init__(self, window: Window, steps: WindowSteps, syncs: Sequence[WindowSync]) -> None:
        self._window = window
        inside = [sync for sync in syncs if sync.step >= 0]
        self._sites: list[WindowSite] = list(dict.fromkeys(sync.site for sync in inside))
        places = {site: place for place, site in enumerate(self._sites)}
        self._site_of_call = {sync.call: places[sync.site] for sync in inside}
        self._site_of_copy = {
            sync.copy_call: places[sync.site] for sync in inside if sync.copy_call >= 0
        }
        self._copies_waited_for = {sync.copy_call for sync in syncs} | {sync.call for sync in syncs}
        self._side: GpuSide = gpu_side(window)
        roles = thread_roles(window, steps)
        self._followed = works_for_loop(roles)
        self._autograd = np.array([role == AUTOGRAD for role in roles], dtype=bool)
        self._boundaries = boundaries(window, self._followed)
        self._reads = sorted(
            (read.start_ns, read.end_ns, self._site_of_call[read.call])
            for read in reads(window, inside)
        )
        profiler = steps.found_by.startswith("ranges ProfilerStep")
        ends = steps.end_ns if profiler else steps.until_ns
        self._stretches = list(zip(steps.start_ns.tolist(), ends.tolist(), strict=True))
        self._step_of_op = steps.of_ops(window)
        self._rank_waits_ns = rank_waits_ns(window, self._step_of_op)
        self._steps = steps
        self._whole = self._stretches[0][0], self._stretches[-1][1]
        fetches, self._loader_waits = loader_waits(window, steps.thread, *self._whole)
        self._workers: Workers = "lead" if self._loader_waits else "follow" if fetches else "none"
        self._events = find_events(window, self._side, self._replayed_calls())
        self._waits = find_waits(window)
        self._wait_of_call = {int(call): place for place, call in enumerate(self._waits.call)}

    def _replayed_calls(self) -> NDArray[np.bool_]:
        calls = self._window.calls
        inside = np.zeros(len(calls), dtype=bool)
        for start_ns, end_ns in self._stretches:
            inside |= (calls.start_ns >= start_ns) & (calls.start_ns < end_ns)
        if len(self._followed):
            inside &= (calls.thread >= 0) & self._followed[np.maximum(calls.thread, 0)]
        return inside

    # ---- the whole ----------------------------------------------------------------------------
    def program(self) -> Program:
        window, side = self._window, self._side
        items = self._with_arrivals()
        in_steps = self._step_of_op >= 0
        first_ns, end_ns = self._whole
        rate, rate_seen = pinned_rate(window)
        return Program(
            items=tuple(items),
            steps=len(self._steps),
            lanes=tuple(side.lanes),
            sites=tuple(self._sites),
            recorded_ns=sum(end - start for start, end in self._stretches),
            gpu_ns=side.busy_ns(window, np.flatnonzero(in_steps), self._rank_waits_ns),
            backlog_ns=backlog_ns(window, side, first_ns, end_ns),
            pinned_bytes_per_ns=rate,
            rate_seen=rate_seen,
            source=window.source,
            unresolved=self._events.unresolved,
            guessed=self._events.guessed,
            workers=self._workers,
            collectives=int((collectives(window) & in_steps).sum()),
            unfollowed_ns=unfollowed_ns(window, side, in_steps, self._followed, first_ns, end_ns),
            late_share=late_share(window, side),
        )

    def _with_arrivals(self) -> list[Item]:
        """The items of all steps; a loader's batches come at the times recorded."""
        items: list[Item] = []
        passed, last = 0, 0.0
        for start_ns, end_ns in self._stretches:
            for at_ns, item in self._items(start_ns, end_ns):
                if item.act == Act.ARRIVE:
                    arrived = float(passed + at_ns - start_ns)
                    item, last = replace(item, length_ns=arrived - last), arrived
                items.append(item)
            passed += end_ns - start_ns
        if last:
            items.append(Item(0.0, 0.0, act=Act.PASS, length_ns=passed - last))
        return items

    # ---- one step -----------------------------------------------------------------------------
    def _items(self, begin_ns: int, end_ns: int) -> list[tuple[int, Item]]:
        """The items of a stretch, each with when its CPU time ended."""
        calls = self._window.calls
        first, last = np.searchsorted(calls.start_ns, (begin_ns, end_ns))
        rows = np.arange(first, last)
        rows = rows[(calls.thread[rows] >= 0) & self._followed[np.maximum(calls.thread[rows], 0)]]
        marks = [(int(calls.start_ns[row]), int(calls.end_ns[row]), int(row)) for row in rows]
        cuts = [cut for start, end, _ in self._reads for cut in (start, end)]
        cuts += [cut for wait in self._loader_waits for cut in wait]
        marks += [(cut, cut, -1) for cut in cuts if begin_ns <= cut < end_ns]
        marks.sort()
        marks.append((end_ns, end_ns, -1))
        items: list[tuple[int, Item]] = []
        arrivals = {end for _, end in self._loader_waits}
        at = begin_ns
        for start, end, call in marks:
            end = min(end, end_ns)
            if call < 0 and start in arrivals and start > at:
                items.append((start, Item(0.0, 0.0, act=Act.ARRIVE)))
            else:
                items += [(start, item) for item in self._up_to(at, start, end, call)]
            at = max(at, end)
        return items

    def _up_to(self, at: int, start_ns: int, end_ns: int, call: int) -> list[Item]:
        """The CPU time from ``at`` to a call, and the call."""
        gap = max(start_ns - at, 0)
        if call < 0 and not gap:
            return []
        quiet_ns = self._boundaries.quiet_ns(at, start_ns)
        before = _Before(
            cpu_ns=float(gap - quiet_ns),
            boundaries=self._boundaries.between(at, start_ns) + 2.0 * (call >= 0),
            fixed_ns=float(quiet_ns),
            within=self._within(at, start_ns, call),
            backward=bool(call >= 0 and self._autograd[self._window.calls.thread[call]]),
            call=call,
        )
        if call < 0:
            return [before.item(0.0)]
        took = float(end_ns - start_ns)
        if self._side.op_of_call[call] >= 0:
            return self._launch(before, took)
        if call in self._wait_of_call:
            return [self._wait(before, took)]
        if call in self._events.recorded:
            lane = self._events.recorded[call]
            return [before.item(took, Act.RECORD, lane=lane, event=call)]
        if call in self._events.waited:
            lane, record = self._events.waited[call]
            return [before.item(took, Act.STREAM_WAIT, lane=lane, event=record)]
        return [before.item(took)]

    def _within(self, at: int, start_ns: int, call: int) -> int:
        """The site of the reading operator that a stretch of CPU time lies in; -1 for none."""
        middle = (at + start_ns) // 2 if start_ns > at else start_ns
        place = bisect_right(self._reads, middle, key=lambda read: read[0]) - 1
        if place < 0:
            return -1
        begin, end, site = self._reads[place]
        inside = middle <= end and (call < 0 or begin <= start_ns <= end)
        return site if inside else -1

    def _launch(self, before: _Before, took: float) -> list[Item]:
        gpu, side, call = self._window.gpu, self._side, before.call
        op = int(side.op_of_call[call])
        rows = side.blocks[call]
        end_ns = int(gpu.end_ns[rows].max())
        lane = int(side.lane_of_op[rows[0]])
        to_or_from_host = gpu.kind[op] == OpKind.COPY and gpu.copy_kind[op] in (
            CopyKind.H2D,
            CopyKind.D2H,
        )
        site = self._site_of_copy.get(call, self._site_of_call.get(call, -1))
        held = to_or_from_host and gpu.host_memory[op] == Memory.PAGEABLE
        held = bool(held and call in self._copies_waited_for)
        launch = before.item(
            min(took, _OWN_NS) if held else took,
            Act.LAUNCH,
            lane=lane,
            length_ns=float(end_ns - gpu.start_ns[rows].min()),
            inner_gap_ns=inner_gap_ns(gpu, rows),
            rank_wait_ns=float(self._rank_waits_ns[op]) if len(rows) == 1 else 0.0,
            gap_ns=float(side.gap_ns[op]),
            latency_ns=side.latency_ns,
            also=tuple(sorted({int(each) for each in side.lane_of_op[rows]} - {lane})),
            site=site,
            bytes=int(gpu.bytes[op]) if to_or_from_host else 0,
            op=op,
        )
        if not held:
            return [launch]
        wake_ns = float(np.clip(self._window.calls.end_ns[call] - end_ns, 0, _LONGEST_WAKE_NS))
        wait = Item(
            0.0, 0.0, act=Act.WAIT, lane=lane, wake_ns=wake_ns, site=site, within=before.within,
            call=call,
        )  # fmt: skip
        return [launch, wait]

    def _wait(self, before: _Before, took: float) -> Item:
        waits, call = self._waits, before.call
        place = self._wait_of_call[call]
        kind, blocked = int(waits.wait_call[place]), bool(waits.blocked[place])
        if kind == WaitCall.FREE and not blocked:
            return before.item(took)
        device, stream = int(waits.device[place]), int(waits.stream[place])
        lane = self._side.lanes.get((device, stream), ALL_LANES)
        if kind in (WaitCall.DEVICE, WaitCall.FREE):
            lane = ALL_LANES
        wake_ns = 0.0
        if blocked:
            late_ns = self._window.calls.end_ns[call] - self._done_ns(call, place)
            wake_ns = float(np.clip(late_ns, 0, _LONGEST_WAKE_NS))
        return before.item(
            min(took, _OWN_BLOCKED_NS if blocked else _OWN_NS),
            Act.WAIT,
            lane=lane,
            also=self._lanes_of(device) if lane == ALL_LANES else (),
            event=self._events.synced.get(call, -1) if kind == WaitCall.EVENT else -1,
            wake_ns=wake_ns,
            site=self._site_of_call.get(call, -1),
        )

    def _lanes_of(self, device: int) -> tuple[int, ...]:
        """Lanes of a device; all where it is not known, or has none."""
        mine = tuple(lane for (each, _), lane in self._side.lanes.items() if each == device)
        return mine or tuple(self._side.lanes.values())

    def _done_ns(self, call: int, place: int) -> int:
        """When what a blocked wait waited for was done: its copy, or the last op ended by then."""
        gpu: Column = self._window.gpu.end_ns
        copy = int(self._waits.copy_op[place])
        if copy >= 0:
            return int(gpu[copy])
        end_ns = int(self._window.calls.end_ns[call])
        ended = gpu[gpu <= end_ns]
        return int(ended.max()) if len(ended) else end_ns
