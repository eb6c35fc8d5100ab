"""``History``: step times and logged values over the run, thinned out for drawing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.steps import time_steps
from trainscope.trace.metrics import NON_FINITE
from trainscope.trace.trace import Trace

__all__ = ["MAX_POINTS", "MAX_SERIES", "History", "Series", "history"]

MAX_POINTS = 400
"""Buckets a curve is thinned to; each keeps its lowest, middle and highest value."""
MAX_SERIES = 12
"""Metrics drawn, in the order in which they first appear."""
_MAX_LINES = 2_000_000


@dataclass(frozen=True)
class Series:
    """One curve; the lists are of one length."""

    name: str
    step: list[int]
    """First step of each bucket."""
    low: list[float]
    middle: list[float]
    high: list[float]
    left_out: int
    """Values that are no finite number."""


@dataclass(frozen=True)
class History:
    """The curves of a run."""

    step_ms: Series | None
    metrics: tuple[Series, ...]


def history(trace: Trace) -> History:
    """Step times from the ranges, metrics from the rank's ``metrics.jsonl``."""
    times = time_steps(trace)
    step_ms = _thin("step time", times.step, times.duration_ns / 1e6) if times.count else None
    return History(step_ms, _metrics(trace.path / f"rank{trace.rank}" / "metrics.jsonl"))


def _metrics(file: Path) -> tuple[Series, ...]:
    points: dict[str, list[tuple[int, float]]] = {}
    for step, name, value in _rows(file):
        if name in points or len(points) < MAX_SERIES:
            points.setdefault(name, []).append((step, value))
    return tuple(_thin(name, *map(np.array, zip(*of, strict=True))) for name, of in points.items())


def _rows(file: Path) -> Iterator[tuple[int, str, float]]:
    """Step, name and value of each; a torn or foreign line is left out, as a kill leaves one."""
    try:
        lines = file.open(encoding="utf-8", errors="replace")
    except OSError:
        return
    with lines:
        for number, line in enumerate(lines):
            if number == _MAX_LINES:
                return
            try:
                record = json.loads(line)
                step = int(record.pop("step"))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
            for name, value in record.items():
                if name == "time_unix_ns" or isinstance(value, bool):
                    continue
                if isinstance(value, (int, float)):
                    yield step, name, float(value)
                elif isinstance(value, str) and value in NON_FINITE:
                    yield step, name, math.nan


def _thin(name: str, step: NDArray[np.int64], value: NDArray[np.float64]) -> Series:
    finite = np.isfinite(value)
    left_out = int((~finite).sum())
    step, value = step[finite], value[finite]
    edges = np.unique(np.linspace(0, len(value), min(len(value), MAX_POINTS) + 1).astype(int))
    buckets: Sequence[NDArray[np.float64]] = [value[begin:end] for begin, end in pairwise(edges)]
    return Series(
        name=name,
        step=[int(step[begin]) for begin in edges[:-1]],
        low=[float(bucket.min()) for bucket in buckets],
        middle=[float(np.median(bucket)) for bucket in buckets],
        high=[float(bucket.max()) for bucket in buckets],
        left_out=left_out,
    )
