"""``Samples``: guesses of how much slower the profiler made things, and CPU times by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainscope.analysis.replay.program import Item, Program

__all__ = ["Samples", "Vector", "cpu_times", "gpu_length"]

Vector = NDArray[np.float64]

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
    graph_gap: Vector
    """What is left of the time between the kernels of a replayed graph."""
    rank_wait: Vector
    """What is left of the time that a collective waits for other ranks."""

    def __len__(self) -> int:
        return len(self.cpu_scale)

    def take(self, rows: ArrayLike | slice) -> Samples:
        """Those at ``rows``."""
        return Samples(*(getattr(self, each.name)[rows] for each in fields(self)))

    def parts(self, most: int) -> Iterator[Samples]:
        """The same in order, at most so many at a time."""
        for first in range(0, len(self), max(most, 1)):
            yield self.take(slice(first, first + max(most, 1)))

    @classmethod
    def as_recorded(cls) -> Samples:
        """One sample: nothing was the profiler's."""
        return cls(np.zeros(1), *(np.ones(1) for _ in fields(cls)[1:]))


def gpu_length(item: Item, samples: Samples) -> Vector:
    """How long the GPU takes for a launched op or graph, for each sample."""
    if item.is_copy:
        return item.length_ns / samples.copy_rate
    busy_ns = item.length_ns - item.inner_gap_ns - item.rank_wait_ns
    unsure_ns = item.inner_gap_ns * samples.graph_gap + item.rank_wait_ns * samples.rank_wait
    return busy_ns * samples.gpu_scale + unsure_ns


def cpu_times(program: Program, samples: Samples) -> NDArray[np.float64]:
    """CPU time of each item (rows) for each sample (columns)."""
    items = program.items
    cpu = np.array([item.cpu_ns for item in items])[:, None]
    boundaries = np.array([item.boundaries for item in items])[:, None]
    fixed = np.array([item.fixed_ns for item in items])[:, None]
    backward = np.array([item.backward for item in items])[:, None]
    least = _LEAST * cpu
    own = np.maximum(least, cpu - samples.per_boundary_ns * boundaries)
    scale = samples.cpu_scale * np.where(backward, samples.backward_scale, 1.0)
    return fixed + np.maximum(least, scale * own)
