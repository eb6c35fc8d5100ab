"""A loop on a little machine of its own: how long its steps take, and what a profiler records.

Written apart from the replay, which is tested against it. All times are in ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from made_windows import Made

from trainscope.trace.window import CopyKind, Memory, SyncKind, Window

LATENCY_NS = 3_000
GAP_NS = 1_300
WAKE_NS = 7_000
CALL_NS = 4_000
MAIN, SIDE = 7, 20


@dataclass(frozen=True)
class Cpu:
    """Computation with nothing recorded in it."""

    ns: int


@dataclass(frozen=True)
class Op:
    """An operator that takes ``cpu_ns`` beside its launch of a kernel of ``gpu_ns``."""

    gpu_ns: int
    cpu_ns: int = 6_000
    stream: int = MAIN
    inner: int = 0
    """Operators inside it, before its launch."""


@dataclass(frozen=True)
class Graph:
    """A replay of a captured graph: its kernels run one after the other in one launch."""

    gpu_ns: tuple[int, ...]


@dataclass(frozen=True)
class Item:
    """``.item()``: a copy of 4 bytes, and a wait for it."""

    name: str
    cpu_ns: int = 5_000


@dataclass(frozen=True)
class DeviceSync:
    name: str


@dataclass(frozen=True)
class Upload:
    """A copy to the GPU of pageable memory that the CPU waits for."""

    name: str
    bytes: int
    pageable_ns: int
    pinned_ns: int


@dataclass(frozen=True)
class WaitStream:
    """``waiting.wait_stream(other)``: an event recorded on one stream, waited for by the other."""

    waiting: int
    other: int


@dataclass(frozen=True)
class Record:
    """An event on a stream, to be waited for later."""

    event: str
    stream: int


@dataclass(frozen=True)
class WaitEvent:
    event: str
    waiting: int


@dataclass(frozen=True)
class Fetch:
    """The next batch of a loader whose workers take ``period_ns`` for each and keep four ready."""

    period_ns: int


Act = Fetch | Cpu | Op | Graph | Item | DeviceSync | Upload | WaitStream | Record | WaitEvent


@dataclass
class LittleGpu:
    """Runs a loop: ``profiler_ns`` at each recorded boundary, and all operators slower by a share.

    ``removed`` are names of syncs that the loop does without.
    """

    step: Sequence[Act]
    removed: frozenset[str] = frozenset()
    profiler_ns: int = 0
    slower: float = 1.0
    sync_records: bool = True
    tells_events: bool = False
    now: int = 0
    tails: dict[int, int] = field(default_factory=dict)
    events: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    made: Made = field(default_factory=Made)
    waited_ns: int = 0
    """In reads, from their begin to their end."""
    ready: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def step_ns(self, turns: int = 60) -> float:
        """Time of a step in the steady state."""
        for _ in range(turns):
            self._turn()
        half = self._reached()
        for _ in range(turns):
            self._turn()
        return (self._reached() - half) / turns

    def window(self, steps: int = 4, turns_before: int = 3) -> Window:
        """What a profiler records of some steps."""
        for _ in range(turns_before):
            self._turn()
        running = [row for row in self.made.gpu if int(row["end_ns"]) > self.now]
        begun = self.made.next_correlation
        self.made = Made()
        self.made.gpu, self.made.next_correlation = running, begun  # their launches are not seen
        for number in range(steps):
            begin = self.now
            self._turn()
            self.made.range(f"ProfilerStep#{number}", begin, self.now)
        return self.made.window(sync_records=self.sync_records)

    def _reached(self) -> int:
        return max(self.now, *self.tails.values(), 0)

    def _spend(self, ns: float, boundaries: int = 0) -> None:
        self.now += round(ns * self.slower) + boundaries * self.profiler_ns

    def _enqueue(self, stream: int, ns: int) -> tuple[int, int]:
        start = max(self.now + LATENCY_NS, self.tails.get(stream, -GAP_NS) + GAP_NS)
        self.tails[stream] = start + ns
        return start, start + ns

    def _call(self, name: str) -> int:
        begin = self.now
        self._spend(CALL_NS, 2)
        return self.made.call(name, begin, self.now)

    def _turn(self) -> None:
        for act in self.step:
            self._do(act)

    def _do(self, act: Act) -> None:
        match act:
            case Cpu(ns):
                self.now += ns
            case Fetch(period_ns):
                self._fetch(period_ns)
            case Op(gpu_ns, cpu_ns, stream, inner):
                begin = self.now
                for _ in range(inner):
                    inside = self.now
                    self._spend(cpu_ns / inner, 2)
                    self.made.op("aten::view", inside, self.now)
                self._spend(0 if inner else cpu_ns, 1)
                call = self._call("cudaLaunchKernel")
                start, end = self._enqueue(stream, gpu_ns)
                self.made.kernel(start, end, call, stream=stream)
                self.made.op("aten::mm", begin, self.now)
                self._spend(0, 1)
            case Graph(parts):
                call = self._call("cudaGraphLaunch")
                start, _ = self._enqueue(MAIN, sum(parts))
                for ns in parts:
                    self.made.kernel(start, start + ns, call)
                    start += ns
            case Item(name, cpu_ns):
                if name not in self.removed:
                    self._item(name, cpu_ns)
            case DeviceSync(name):
                if name not in self.removed:
                    self._wait("cudaDeviceSynchronize", self._reached(), SyncKind.DEVICE, -1)
            case Upload():
                self._upload(act)
            case WaitStream(waiting, other):
                self._do(Record(f"{waiting} {other}", other))
                self._do(WaitEvent(f"{waiting} {other}", waiting))
            case Record(event, stream):
                call = self._call("cudaEventRecord")
                self.events[event] = (self.tails.get(stream, 0), stream, call)
            case WaitEvent(event, waiting):
                self._wait_event(event, waiting)

    def _fetch(self, period_ns: int) -> None:
        begin = self.now
        room = self.taken[-4] if len(self.taken) >= 4 else 0
        self.ready.append(max(self.ready[-1] if self.ready else 0, room) + period_ns)
        self._spend(20_000, 1)
        self.now = max(self.now, self.ready[-1])
        self.taken.append(self.now)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self.made.range(name, begin, self.now)
        self._spend(0, 1)

    def _item(self, name: str, cpu_ns: int) -> None:
        begin = self.now
        self.made.range(f"read {name}", begin, begin)
        self._spend(cpu_ns, 1)
        call = self._call("cudaMemcpyAsync")
        start, end = self._enqueue(MAIN, 1_500)
        self.made.copy(start, end, call, CopyKind.D2H, Memory.PINNED)
        self._wait("cudaStreamSynchronize", end, SyncKind.STREAM, MAIN)
        self.waited_ns += self.now - begin
        self.made.op("aten::item", begin, self.now)
        self._spend(0, 1)

    def _upload(self, act: Upload) -> None:
        begin, free = self.now, act.name in self.removed
        self._spend(4_000, 1)
        call_begin = self.now
        self._spend(CALL_NS, 2)
        start, end = self._enqueue(MAIN, act.pinned_ns if free else act.pageable_ns)
        if not free:
            self.now = max(self.now, end + WAKE_NS)
        call = self.made.call("cudaMemcpyAsync", call_begin, self.now)
        memory = Memory.PINNED if free else Memory.PAGEABLE
        self.made.copy(start, end, call, CopyKind.H2D, memory, size=act.bytes)
        if not free:
            self._wait("cudaStreamSynchronize", end, SyncKind.STREAM, MAIN)
        self.made.op("aten::copy_", begin, self.now)
        self._spend(0, 1)

    def _wait(self, name: str, until: int, kind: SyncKind, stream: int) -> None:
        begin = self.now
        self._spend(CALL_NS, 2)
        if until > begin:
            self.now = max(self.now, until + WAKE_NS)
        known = kind if self.sync_records else None
        self.made.wait(begin, self.now, name=name, kind=known, stream=stream)

    def _wait_event(self, event: str, waiting: int) -> None:
        done, stream, recorded = self.events.get(event, (0, -1, -1))
        begin = self.now
        self._spend(CALL_NS, 2)
        self.tails[waiting] = max(self.tails.get(waiting, 0), done)
        known = SyncKind.STREAM_WAIT if self.sync_records else None
        told = recorded if self.tells_events else -1
        self.made.wait(
            begin, self.now, name="cudaStreamWaitEvent", kind=known, stream=waiting,
            event_correlation=told,
        )  # fmt: skip
        if known is not None:
            self.made.syncs[-1]["event_stream"] = stream if self.tells_events else -1
