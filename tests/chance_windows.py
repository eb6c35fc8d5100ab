"""Windows of chance: places not known, times that run backwards, calls that belong to nothing."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from made_windows import empty_window

from trainscope.trace.window import Calls, GpuOps, Spans, Syncs, Thread, Window

__all__ = ["of_chance"]

NAMES = (
    *("ProfilerStep#1", "ProfilerStep#2", "step 3", "data", "work", ""),
    *("cudaStreamSynchronize", "cudaMemcpyAsync", "cudaDeviceSynchronize", "cudaLaunchKernel"),
    *("cudaEventSynchronize", "cudaMemcpy", "cudaFree", "aten::item", "aten::mm", "c10d::x"),
    *("autograd::engine::evaluate_function: X", "train.py(3): f", "<built-in method item of T>"),
    "ncclDevKernel_AllReduce_x",
)
BELOW = {"thread": 3, "name_id": len(NAMES) + 1, "shape_id": 3, "correlation": 15, "device": 2}
BELOW |= {"stream": 4, "copy_kind": 5, "host_memory": 3, "bytes": 100}


def table(kind: type, chance: np.random.Generator):
    """Rows in which any number may be -1, names past the list, and ends before starts."""
    count = int(chance.integers(0, (1, 3, 30)[chance.integers(3)] + 1))
    start = chance.integers(-50, 400, count)
    columns = {"start_ns": start, "end_ns": start + chance.integers(-3, 80, count)}
    for field in fields(kind):
        if field.name == "kind":
            columns["kind"] = chance.integers(0, 3 if kind is GpuOps else 4, count)
        elif field.name not in columns:
            columns[field.name] = chance.integers(-1, BELOW.get(field.name, 10), count)
    return kind.of(columns)


def of_chance(seed: int) -> Window:
    chance = np.random.default_rng(seed)
    return replace(
        empty_window(),
        names=NAMES,
        shapes=("a", "b"),
        threads=tuple(Thread(1, place, "python") for place in range(3)),
        **{name: table(Spans, chance) for name in ("ops", "ranges", "frames")},
        calls=table(Calls, chance),
        gpu=table(GpuOps, chance),
        syncs=table(Syncs, chance),
    )
