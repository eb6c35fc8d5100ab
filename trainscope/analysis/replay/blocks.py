"""Runs of launches into one stream put together, so that a replay takes few steps.

The end of a stream's work after some launches is the larger of two: what the CPU's time and what
the stream's own earlier work leads to. Both are sums, so any number of launches is one such step
as long as no wait, no event and no other stream comes between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainscope.analysis.replay.program import Act, Item, Program
from trainscope.analysis.replay.samples import Samples, Vector, cpu_times

__all__ = ["Launches", "Single", "blocks_of"]

_MOST_LAUNCHES = 32
"""In a block: how finely the bound of the launch queue is followed."""


@dataclass(frozen=True, eq=False)
class Single:
    """CPU time, then what one item does."""

    cpu_ns: Vector
    item: Item


@dataclass(frozen=True, eq=False)
class Launches:
    """CPU time with launches into one stream in it."""

    cpu_ns: Vector
    first: Item
    count: int
    from_cpu_ns: Vector
    """From the CPU's beginning of it to the end of its work, if the stream is empty."""
    from_stream_ns: Vector
    """From the end of earlier work in the stream to the end of its own, if the CPU is ahead."""
    first_from_cpu_ns: Vector
    """From the CPU's beginning of it to the start of its first op, if the stream is empty."""


def blocks_of(program: Program, samples: Samples) -> list[Single | Launches]:
    """The program in its order for all samples at once."""
    items = program.items
    if not items:
        return []
    cpu = cpu_times(program, samples)
    is_launch = np.array([item.act == Act.LAUNCH for item in items])
    gap = np.array([item.gap_ns for item in items])[:, None] * is_launch[:, None]
    inner = np.array([item.inner_gap_ns for item in items])[:, None]
    ranks = np.array([item.rank_wait_ns for item in items])[:, None]
    busy = np.array([item.length_ns for item in items])[:, None] - inner - ranks
    unsure = inner * samples.graph_gap + ranks * samples.rank_wait
    is_copy = np.array([item.is_copy for item in items])[:, None]
    length = is_launch[:, None] * np.where(
        is_copy, busy / samples.copy_rate, busy * samples.gpu_scale + unsure
    )
    cpu_until = np.concatenate((np.zeros((1, len(samples))), np.cumsum(cpu, axis=0)))
    work_until = np.concatenate((np.zeros((1, len(samples))), np.cumsum(gap + length, axis=0)))
    latency = np.array([item.latency_ns for item in items])[:, None]
    # an op that starts with its launch, then all work after it
    alone = cpu_until[1:] + latency + length - work_until[1:]
    runs = np.array(_runs(items))
    first, last = runs[:, 0], runs[:, 1]
    took = cpu_until[last] - cpu_until[first]
    launches = np.flatnonzero(is_launch)
    begin, end = np.searchsorted(launches, first), np.searchsorted(launches, last)
    some = np.flatnonzero(end > begin)
    at = launches[begin[some]]
    # every launch is in one of these blocks, so that each ends where the next one begins
    latest = np.maximum.reduceat(alone[launches], begin[some], axis=0) if len(some) else alone[:0]
    from_cpu = latest + work_until[last[some]] - cpu_until[first[some]]
    from_stream = work_until[last[some]] - work_until[first[some]]
    first_from_cpu = cpu_until[at + 1] - cpu_until[first[some]] + latency[at]
    found: list[Single | Launches] = [
        Single(each, items[place - 1]) for each, place in zip(took, last, strict=True)
    ]
    for row, block in enumerate(some):
        item = items[at[row]]
        if item.also:
            continue
        found[block] = Launches(
            cpu_ns=took[block],
            first=item,
            count=int(end[block] - begin[block]),
            from_cpu_ns=from_cpu[row],
            from_stream_ns=from_stream[row],
            first_from_cpu_ns=first_from_cpu[row],
        )
    return found


def _runs(items: tuple[Item, ...]) -> list[tuple[int, int]]:
    """From where to where the items reach that make one block."""
    found: list[tuple[int, int]] = []
    first, launches, lane = 0, 0, -1
    for place, item in enumerate(items):
        joins = item.act == Act.NONE or (item.act == Act.LAUNCH and not item.also)
        changes = item.act == Act.LAUNCH and launches and item.lane != lane
        full = item.act == Act.LAUNCH and launches >= _MOST_LAUNCHES
        if (not joins or changes or full) and first < place:
            found.append((first, place))
            first, launches = place, 0
        if not joins:
            found.append((place, place + 1))
            first = place + 1
        elif item.act == Act.LAUNCH:
            launches, lane = launches + 1, item.lane
    if first < len(items):
        found.append((first, len(items)))
    return found
