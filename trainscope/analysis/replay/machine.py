"""The machine that runs a ``Program``: one CPU, streams as queues, for many samples at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.replay.program import ALL_LANES, Act, Program

__all__ = ["QUEUE_LIMIT", "Samples", "Spans", "run", "run_for_drawing", "run_once"]

Vector = NDArray[np.float64]

QUEUE_LIMIT = 1022
"""Launches outstanding before the next one waits: CUDA's queue, seen to be about that long."""
_TURNS = 9
_SETTLED = 3
"""Turns of the recorded steps until each takes as long as the one before."""
_MOST_TURNS = 40
"""Turns drawn at most until the CPU has caught up with what is shown of the GPU."""
_LEAST = 0.25
"""However much of it was the profiler's, so much of a stretch of CPU time is the program's."""


@dataclass(frozen=True)
class Samples:
    """Guesses of how much slower the profiler made the CPU; vectors of one length."""

    per_boundary_ns: Vector
    """Cost of recording the beginning or end of an event."""
    cpu_scale: Vector
    """What is left of CPU time in operators once that is taken off."""
    backward_scale: Vector
    """The same on autograd's thread, over that on the loop's."""
    gpu_scale: Vector
    """How long GPU ops take without the profiler, over what was recorded."""
    copy_rate: Vector
    """Factor on the assumed rate of a copy with pinned memory."""

    def __len__(self) -> int:
        return len(self.cpu_scale)

    def take(self, rows: NDArray[np.int64]) -> Samples:
        """Those at ``rows``."""
        return Samples(
            self.per_boundary_ns[rows],
            self.cpu_scale[rows],
            self.backward_scale[rows],
            self.gpu_scale[rows],
            self.copy_rate[rows],
        )

    @classmethod
    def as_recorded(cls) -> Samples:
        """One sample: nothing was the profiler's."""
        return cls(np.zeros(1), *(np.ones(1) for _ in range(4)))


@dataclass
class Spans:
    """What one turn did, for drawing; times in ns from its beginning."""

    cpu: list[tuple[float, float, int]] = field(default_factory=list)
    """Start, end and the item's place."""
    waits: list[tuple[float, float, int]] = field(default_factory=list)
    gpu: list[tuple[float, float, int]] = field(default_factory=list)


class _State:
    """Where CPU and streams are."""

    def __init__(self, lanes: int, samples: int) -> None:
        self.now = np.zeros(samples)
        self.tails = [np.zeros(samples) for _ in range(lanes)]
        self.barriers: list[Vector | None] = [None] * lanes
        self.events: dict[int, Vector] = {}
        self.queue: deque[Vector] = deque()

    def reached(self) -> Vector:
        """When all that was asked for is done."""
        return np.maximum.reduce([self.now, *self.tails])


def cpu_times(program: Program, samples: Samples) -> NDArray[np.float64]:
    """CPU time of each item (rows) for each sample (columns)."""
    cpu = np.array([item.cpu_ns for item in program.items])[:, None]
    boundaries = np.array([item.boundaries for item in program.items])[:, None]
    fixed = np.array([item.fixed_ns for item in program.items])[:, None]
    least = _LEAST * cpu
    own = np.maximum(least, cpu - samples.per_boundary_ns[None] * boundaries)
    backward = np.array([item.backward for item in program.items])[:, None]
    scale = samples.cpu_scale * np.where(backward, samples.backward_scale, 1.0)
    return fixed + np.maximum(least, scale * own)


def _turn(
    program: Program, cpu: Sequence[Vector], samples: Samples, state: _State, spans: Spans | None
) -> None:
    """All items once."""
    tails, barriers = state.tails, state.barriers
    now = state.now
    queue = state.queue
    gpu = samples.gpu_scale
    for place, item in enumerate(program.items):
        began = now
        now = now + cpu[place]
        if spans is not None and item.act != Act.WAIT:
            spans.cpu.append((float(began[0]), float(now[0]), place))
        act = item.act
        if act == Act.LAUNCH:
            if len(queue) >= QUEUE_LIMIT:
                now = np.maximum(now, queue.popleft())
            lane = item.lane
            start = np.maximum(now + item.latency_ns, tails[lane] + item.gap_ns)
            barrier = barriers[lane]
            if barrier is not None:
                start = np.maximum(start, barrier)
                barriers[lane] = None
            for other in item.also:
                start = np.maximum(start, tails[other])
            length = item.length_ns / samples.copy_rate if item.is_copy else item.length_ns * gpu
            end = start + length
            tails[lane] = end
            for other in item.also:
                tails[other] = end
            queue.append(start)
            if spans is not None:
                spans.gpu.append((float(start[0]), float(end[0]), place))
        elif act == Act.WAIT:
            if item.event >= 0:
                until = state.events.get(item.event)
            elif item.lane == ALL_LANES:
                until = np.maximum.reduce(tails) if tails else None
            else:
                until = tails[item.lane]
            if until is not None:
                now = np.maximum(now, until + item.wake_ns)
            if spans is not None:
                spans.waits.append((float(began[0]), float(now[0]), place))
        elif act == Act.RECORD:
            state.events[item.event] = tails[item.lane]
        elif act == Act.STREAM_WAIT:
            noted = state.events.get(item.event)
            if noted is not None:
                known = barriers[item.lane]
                barriers[item.lane] = noted if known is None else np.maximum(known, noted)
        elif act == Act.STREAM_WAITS_FOR_STREAM:
            for other in range(len(tails)):
                if other != item.lane and item.lane >= 0:
                    known = barriers[other]
                    done = tails[item.lane]
                    barriers[other] = done if known is None else np.maximum(known, done)
    state.now = now


def run(program: Program, samples: Samples) -> Vector:
    """Time per step in the steady state, for each sample: the recorded steps over and over."""
    cpu = list(cpu_times(program, samples))
    state = _State(len(program.lanes), len(samples))
    settled = state.reached()
    for turn in range(_TURNS):
        if turn == _SETTLED:
            settled = state.reached()
        _turn(program, cpu, samples, state, None)
    return (state.reached() - settled) / ((_TURNS - _SETTLED) * program.steps)


def run_once(program: Program) -> float:
    """How long the recorded steps take on the CPU when replayed once as recorded, in ns."""
    samples = Samples.as_recorded()
    state = _State(len(program.lanes), 1)
    for lane, busy_ns in enumerate(program.backlog_ns):
        state.tails[lane] = np.full(1, busy_ns)
    _turn(program, list(cpu_times(program, samples)), samples, state, None)
    return float(state.now[0])


def run_for_drawing(program: Program, samples: Samples) -> tuple[Spans, float]:
    """What happens while the GPU does one settled turn, for one sample, and how long that is in ns.

    The CPU may be some turns ahead of the GPU by then, so its spans may be of a later turn.
    """
    cpu = list(cpu_times(program, samples))
    state = _State(len(program.lanes), 1)
    spans = Spans()
    done = []
    for _ in range(_MOST_TURNS):
        _turn(program, cpu, samples, state, spans)
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
