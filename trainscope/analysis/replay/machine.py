"""The machine that runs a ``Program``: one CPU, streams as queues, for many samples at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainscope.analysis.replay.blocks import Launches, blocks_of
from trainscope.analysis.replay.program import ALL_LANES, Act, Item, Program
from trainscope.analysis.replay.samples import Samples, Vector, cpu_times, gpu_length

__all__ = [
    "QUEUE_LIMIT",
    "Samples",
    "Spans",
    "run",
    "run_for_drawing",
    "run_once",
    "run_with_waits",
]

QUEUE_LIMIT = 1022
"""Launches outstanding before the next one waits: CUDA's queue, seen to be about that long."""
_TURNS = 9
_SETTLED = 3
"""Turns of the recorded steps until each takes as long as the one before."""
_MOST_TURNS = 40
"""Turns drawn at most until the CPU has caught up with what is shown of the GPU."""
_SAME = 1e-9
"""By how much turns differ at most that are taken to be alike."""
_AT_ONCE = 1 << 21
"""Items times samples that are held in memory at once."""


@dataclass
class Spans:
    """What one turn did, for drawing; times in ns from its beginning."""

    cpu: list[tuple[float, float, int]] = field(default_factory=list)
    """Start, end and the item's place."""
    waits: list[tuple[float, float, int]] = field(default_factory=list)
    gpu: list[tuple[float, float, int]] = field(default_factory=list)


class _State:
    """Where CPU and streams are."""

    def __init__(self, lanes: int, samples: Samples) -> None:
        self.samples = samples
        self.now = np.zeros(len(samples))
        self.tails = [np.zeros(len(samples)) for _ in range(lanes)]
        self.events: dict[int, Vector] = {}
        self.queue: deque[tuple[int, Vector]] = deque()
        """Launches so far and a start: of each op, or of the first of each block."""
        self.launched = 0
        self.arrival = np.zeros(len(samples))
        """When a loader's workers delivered last."""

    def reached(self) -> Vector:
        """When all that was asked for is done."""
        return np.maximum.reduce([self.now, *self.tails])

    def wait_for_room(self, launches: int) -> None:
        """Let the CPU wait until the queue has room for so many more."""
        until = self.launched + launches - QUEUE_LIMIT
        while self.queue and self.queue[0][0] < until:
            self.now = np.maximum(self.now, self.queue.popleft()[1])

    def started(self, start: Vector, launches: int) -> None:
        """Note launches of which the first op starts then."""
        self.queue.append((self.launched, start))
        self.launched += launches

    def launch(self, item: Item) -> tuple[Vector, Vector]:
        """One launch; its start and end on the GPU."""
        self.wait_for_room(1)
        tails = self.tails
        start = np.maximum(self.now + item.latency_ns, tails[item.lane] + item.gap_ns)
        for other in item.also:
            start = np.maximum(start, tails[other])
        end = start + gpu_length(item, self.samples)
        for lane in (item.lane, *item.also):
            tails[lane] = end
        self.started(start, 1)
        return start, end

    def launch_all(self, block: Launches) -> None:
        """Its CPU time and launches."""
        self.wait_for_room(block.count)
        lane, now, tail = block.first.lane, self.now, self.tails[block.first.lane]
        start = np.maximum(now + block.first_from_cpu_ns, tail + block.first.gap_ns)
        self.started(start, block.count)
        self.tails[lane] = np.maximum(now + block.from_cpu_ns, tail + block.from_stream_ns)
        self.now = now + block.cpu_ns

    def act(self, item: Item) -> None:
        """What an item does that launches nothing."""
        tails = self.tails
        if item.act == Act.WAIT:
            if item.event >= 0:
                until = self.events.get(item.event)
            elif item.lane == ALL_LANES:
                lanes = [tails[lane] for lane in item.also] or tails
                until = np.maximum.reduce(lanes) if lanes else None
            else:
                until = tails[item.lane]
            if until is not None:
                self.now = np.maximum(self.now, until + item.wake_ns)
        elif item.act == Act.RECORD:
            self.events[item.event] = tails[item.lane]
        elif item.act == Act.STREAM_WAIT:
            noted = self.events.get(item.event)
            if noted is not None:
                tails[item.lane] = np.maximum(tails[item.lane], noted)
        elif item.act in (Act.ARRIVE, Act.PASS):
            self.arrival = self.arrival + item.length_ns
            if item.act == Act.ARRIVE:
                self.now = np.maximum(self.now, self.arrival)
        elif item.act == Act.STREAM_WAITS_FOR_STREAM and item.lane >= 0:
            for other in range(len(tails)):
                tails[other] = np.maximum(tails[other], tails[item.lane])


def run(program: Program, samples: Samples) -> Vector:
    """Time per step in the steady state, for each sample: the recorded steps over and over."""
    return run_with_waits(program, samples, ())[0]


def run_with_waits(
    program: Program, samples: Samples, sites: Collection[int]
) -> tuple[Vector, Vector]:
    """The same, and how much of it the CPU waits at ``sites``, places of ``Program.sites``."""
    at_once = _AT_ONCE // max(len(program.items), 1)
    found = [_run(program, part, frozenset(sites)) for part in samples.parts(at_once)]
    steps, waits = (np.concatenate(each) / program.steps for each in zip(*found, strict=True))
    return steps, waits


def _run(program: Program, samples: Samples, sites: frozenset[int]) -> tuple[Vector, Vector]:
    """Time of a turn, and of the waits in it."""
    blocks = blocks_of(program, samples)
    state = _State(len(program.lanes), samples)
    done = [state.reached()]
    waited = np.zeros((_TURNS, len(samples)))
    for turn in range(_TURNS):
        for block in blocks:
            if isinstance(block, Launches):
                state.launch_all(block)
                continue
            state.now = state.now + block.cpu_ns
            if block.item.act == Act.LAUNCH:
                state.launch(block.item)
            elif block.item.act != Act.NONE:
                began = state.now
                state.act(block.item)
                if block.item.act == Act.WAIT and block.item.site in sites:
                    waited[turn] += state.now - began
        done.append(state.reached())
        if turn >= _SETTLED and _alike(done):
            return done[-1] - done[-2], waited[turn]
    settled = waited[_SETTLED:].mean(axis=0)
    return (done[-1] - done[_SETTLED]) / (_TURNS - _SETTLED), settled


def _alike(done: Sequence[Vector]) -> bool:
    """Whether the last turn took as long as the one before."""
    last, before = done[-1] - done[-2], done[-2] - done[-3]
    return bool((np.abs(last - before) <= _SAME * done[-1]).all())


def _turn(program: Program, cpu: Sequence[Vector], state: _State, spans: Spans | None) -> None:
    """All items once, one by one."""
    for place, item in enumerate(program.items):
        began = state.now
        state.now = state.now + cpu[place]
        if spans is not None and item.act != Act.WAIT:
            spans.cpu.append((float(began[0]), float(state.now[0]), place))
        if item.act == Act.LAUNCH:
            start, end = state.launch(item)
            if spans is not None:
                spans.gpu.append((float(start[0]), float(end[0]), place))
        else:
            state.act(item)
            if spans is not None and item.act == Act.WAIT:
                spans.waits.append((float(began[0]), float(state.now[0]), place))


def run_once(program: Program) -> float:
    """How long the recorded steps take on the CPU when replayed once as recorded, in ns."""
    samples = Samples.as_recorded()
    state = _State(len(program.lanes), samples)
    for lane, busy_ns in enumerate(program.backlog_ns):
        state.tails[lane] = np.full(1, busy_ns)
    _turn(program, list(cpu_times(program, samples)), state, None)
    return float(state.now[0])


def run_for_drawing(program: Program, samples: Samples) -> tuple[Spans, float]:
    """What happens while the GPU does one settled turn, for one sample, and how long that is in ns.

    The CPU may be some turns ahead of the GPU by then, so its spans may be of a later turn.
    """
    cpu = list(cpu_times(program, samples))
    state = _State(len(program.lanes), samples)
    spans = Spans()
    done = []
    for _ in range(_MOST_TURNS):
        _turn(program, cpu, state, spans)
        done.append(float(state.reached()[0]))
        if len(done) > _SETTLED + 1 and float(state.now[0]) >= done[_SETTLED + 1]:
            break
    begin, end = done[_SETTLED], done[_SETTLED + 1]
    for rows in (spans.cpu, spans.waits, spans.gpu):
        rows[:] = [
            (max(start, begin) - begin, min(stop, end) - begin, place)
            for start, stop, place in rows
            if stop > begin and start < end
        ]
    return spans, end - begin
