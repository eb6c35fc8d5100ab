"""How much the profiler slowed the CPU: guesses, weighted by the step time without a profiler."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.replay.machine import run_with_waits
from trainscope.analysis.replay.program import Act, Program
from trainscope.analysis.replay.samples import Samples, cpu_times

__all__ = ["Calibration", "Kept", "MeasuredWait", "calibrate"]

_GUESSES = 2048
_FEWEST_GUESSES = 256
_ITEMS_TIMES_GUESSES = 1 << 24
"""Above it there are fewer guesses: a window with two long steps must not take minutes."""
_KEPT = 64
_KEPT_OF_OTHERS = 16
_PER_BOUNDARY_NS = (1_000.0, 500.0)
"""Mean and spread of what recording one beginning or end of an event costs."""
_CPU_SCALE = (0.88, 0.25)
"""Median and log-spread of what is left of CPU time in operators: caches, allocations, clocks."""
_CPU_SCALE_NSYS = (0.95, 0.15)
"""The same where operators were not recorded; assumed, for no loop was measured both ways."""
_BACKWARD_SPREAD = 0.15
_GPU_SPREAD = 0.01
_LEAST_GRAPH_GAP = 0.1
"""Of the time between a graph's kernels: nothing in the trace tells how much is the profiler's."""
_COPY_RATE_SPREAD, _SEEN_RATE_SPREAD = 0.15, 0.05
"""Of a rate that is assumed, and of one seen in the trace."""
_MATCH = 0.01
"""How closely a replay is expected to meet the measured step time."""
_WAIT_MATCH, _WAIT_SHARE = 0.02, 0.1
"""How closely the measured waits: in parts of the step and of the waits themselves. What the CPU
has to spare is the small difference of two long times."""
_TIMING_NS = 10_000
"""What timing a wait may add to it."""


@dataclass(frozen=True)
class MeasuredWait:
    """How long the loop waits at a site with no profiler on."""

    ns_per_step: float
    doubt_ns: float = 0.0
    """By how much that may be off, for waits that differ."""


@dataclass(frozen=True)
class Kept:
    """Guesses, each as likely as the others."""

    samples: Samples
    step_ns: NDArray[np.float64]
    """The replayed step of each, with all syncs."""
    measured_ns: float | None
    """The measured step that they were weighed by; None where none was, and of other steps: what
    the replay misses there is not looked for."""


@dataclass(frozen=True)
class Calibration:
    """The guesses kept for the usual step, and for those of other steps."""

    usual: Kept
    others: tuple[Kept, ...] = ()
    measured_wait_ns: float | None = None
    """The waits of a step that they were weighed by too; None where none were."""


def calibrate(
    program: Program,
    step_ns: float | None,
    waits: Mapping[int, MeasuredWait] | None = None,
    others_ns: Sequence[float] = (),
) -> Calibration:
    """Guesses in proportion to how well their replay meets ``step_ns``; all alike without it.

    ``waits`` are those measured with no profiler on too, by places of ``Program.sites``. The step
    alone may leave open whether the CPU is too slow for the GPU or waits for it; they tell.
    ``others_ns`` are times that steps took as well: fewer guesses are kept for each.
    """
    guesses, waits = _guesses(program), waits or {}
    replayed, waited = run_with_waits(program, guesses, waits)
    if step_ns is None:
        kept = np.arange(_KEPT) * (len(guesses) // _KEPT)
        return Calibration(Kept(guesses.take(kept), replayed[kept], None))
    wait_miss, whole_ns = 0.0, None
    if waits:
        whole_ns = sum(wait.ns_per_step for wait in waits.values())
        doubt_ns = sum(wait.doubt_ns for wait in waits.values())
        many, own_ns = _own_time(program, guesses, waits)
        spread_ns = _WAIT_MATCH * step_ns + _WAIT_SHARE * whole_ns + _TIMING_NS * many + doubt_ns
        wait_miss = ((waited + own_ns - whole_ns) / spread_ns) ** 2

    def nearest(near_ns: float, many: int, measured_ns: float | None = None) -> Kept:
        miss = ((replayed / near_ns - 1.0) / _MATCH) ** 2 + wait_miss
        # the nearest are the likeliest even where none is near; whether they are is judged
        # elsewhere
        weight = np.exp(-0.5 * (miss - miss.min()))
        edges = np.cumsum(weight) / weight.sum()
        kept = np.searchsorted(edges, (np.arange(many) + 0.5) / many)
        kept = np.minimum(kept, len(guesses) - 1)
        return Kept(guesses.take(kept), replayed[kept], measured_ns)

    others = tuple(nearest(each, _KEPT_OF_OTHERS) for each in others_ns)
    return Calibration(nearest(step_ns, _KEPT, step_ns), others, whole_ns)


def _own_time(
    program: Program, samples: Samples, sites: Collection[int]
) -> tuple[float, NDArray[np.float64]]:
    """Waits a step at some sites, and what the CPU does for them itself: timed live as well."""
    items = program.items
    of_site = np.array([item.site in sites or item.within in sites for item in items])
    many = sum(item.act == Act.WAIT and item.site in sites for item in items)
    own_ns = cpu_times(program, samples)[of_site].sum(axis=0)
    return many / program.steps, own_ns / program.steps


def _guesses(program: Program) -> Samples:
    """Points that fill the seven dimensions evenly, the same for one program in every call."""
    # a Kronecker sequence: multiples of powers of the root of x^7 = x + 1, modulo 1; the seventh
    # power is no new direction, so the last one is the root of 2
    root = 1.1127756842787055
    many = _ITEMS_TIMES_GUESSES // max(len(program.items), 1)
    place = np.arange(1, min(max(many, _FEWEST_GUESSES), _GUESSES) + 1)
    uniform = [np.clip((0.5 + place / root**power) % 1.0, 1e-4, 1 - 1e-4) for power in range(1, 7)]
    mean_ns, spread_ns = _PER_BOUNDARY_NS
    scale, spread = _CPU_SCALE_NSYS if program.source == "nsys" else _CPU_SCALE
    rate_spread = _SEEN_RATE_SPREAD if program.rate_seen else _COPY_RATE_SPREAD
    return Samples(
        per_boundary_ns=np.maximum(mean_ns + spread_ns * _normal(uniform[0]), 0.0),
        cpu_scale=scale * np.exp(spread * _normal(uniform[1])),
        backward_scale=np.exp(_BACKWARD_SPREAD * _normal(uniform[2])),
        gpu_scale=np.exp(_GPU_SPREAD * _normal(uniform[3])),
        copy_rate=np.exp(rate_spread * _normal(uniform[4])),
        graph_gap=_LEAST_GRAPH_GAP + (1.0 - _LEAST_GRAPH_GAP) * uniform[5],
        rank_wait=np.mod(place * math.sqrt(2.0), 1.0, dtype=np.float64),
    )


def _normal(uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles of the normal distribution."""
    normal = NormalDist()
    return np.array([normal.inv_cdf(float(value)) for value in uniform])
