"""What the loop's threads were doing at a moment: loading, communicating, copying, launching."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.intervals import Intervals, union
from trainscope.analysis.launched_by import rows_of
from trainscope.trace.window import Calls, Column, CopyKind, Spans, Window

__all__ = ["CpuCover", "cover_of_cpu"]

BETWEEN_OPERATORS_NS = 100_000
"""A shorter stretch between operators is Python on its way from one to the next."""
LAUNCH, DATA, COPY, COMMUNICATION = 1, 2, 3, 4  # as in IdleCause

_LOADING = re.compile(
    r"(?:\[pl\].*)?.*(?:dataloader|data_loader|dataiter).*"
    r"|(?:\w+[ ./_:-])?(?:data|batch|input)?[ _-]?(?:load|fetch|prefetch|wait)(?:ing|er)?"
    r"[ _-]?(?:data|batch|batches|input|inputs)"
    r"|data(?:[ _-]?(?:load|loading|fetch|fetching|wait|time|next))?"
    r"|(?:get|next)[ _-]?(?:batch|data)",
    re.IGNORECASE,
)
_COMMUNICATION = re.compile(
    r"(?:c10d|nccl|gloo|ucc|_c10d_functional)(?::|::|_).*|record_param_comms|nccl[A-Z]\w*"
    r"|ProcessGroup.*",
)
_PINNING = re.compile(r"aten::_?pin_memory|cuda(?:HostAlloc|MallocHost|HostRegister)(?:_v\d+)?")


@dataclass(frozen=True)
class CpuCover:
    """Stretches by what was done in them, the label that wins first."""

    kinds: tuple[tuple[int, Intervals], ...]

    @property
    def edges_ns(self) -> tuple[Column, ...]:
        """Where any of them begins or ends."""
        return tuple(edge for _, found in self.kinds for edge in (found.start_ns, found.end_ns))

    def labels(self, time_ns: Column) -> Column:
        """What was done at each moment, as the number of an ``IdleCause``; -1 for none of it."""
        label = np.full(len(time_ns), -1, dtype=np.int64)
        for number, found in reversed(self.kinds):
            label[found.covers(time_ns)] = number
        return label


def cover_of_cpu(window: Window, serving: NDArray[np.bool_]) -> CpuCover:
    """The labels for the threads that ``serving`` marks; for all where it marks none."""
    if not serving.any():
        serving = np.ones(max(len(window.threads), 1), dtype=bool)
    data = _named(window, _LOADING)
    communication = _named(window, _COMMUNICATION)
    pinning = _named(window, _PINNING)
    ops, ranges, calls = window.ops, window.ranges, window.calls
    op = rows_of(calls.correlation, window.gpu.correlation)
    copies = np.zeros(len(calls), dtype=bool)
    if len(window.gpu):
        kind = window.gpu.copy_kind[np.maximum(op, 0)]
        copies = (op >= 0) & np.isin(kind, (CopyKind.H2D, CopyKind.D2H, CopyKind.UNKNOWN))

    def stretches(*parts: tuple[Spans | Calls, NDArray[np.bool_]]) -> Intervals:
        starts, ends = [], []
        for table, chosen in parts:
            thread = table.thread
            mine = chosen & (thread >= 0) & serving[np.maximum(thread, 0)]
            starts.append(table.start_ns[mine])
            ends.append(table.end_ns[mine])
        return union(np.concatenate(starts), np.concatenate(ends))

    every_op = np.ones(len(ops), dtype=bool)
    every_call = np.ones(len(calls), dtype=bool)
    return CpuCover(
        (
            (DATA, stretches((ops, _has(ops.name_id, data)), (ranges, _has(ranges.name_id, data)))),
            (
                COMMUNICATION,
                stretches(
                    (ops, _has(ops.name_id, communication)),
                    (ranges, _has(ranges.name_id, communication)),
                    (calls, _has(calls.name_id, communication)),
                ),
            ),
            (
                COPY,
                stretches(
                    (calls, copies | _has(calls.name_id, pinning)),
                    (ops, _has(ops.name_id, pinning)),
                ),
            ),
            (
                LAUNCH,
                stretches((ops, every_op), (calls, every_call)).filled(BETWEEN_OPERATORS_NS),
            ),
        )
    )


def _named(window: Window, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """For each name whether the pattern fits it; one more at the end, for no name."""
    fits = [pattern.fullmatch(name[:200]) is not None for name in window.names]
    return np.array([*fits, False], dtype=bool)


def _has(name_id: Column, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    known = (name_id >= 0) & (name_id < len(chosen))
    return chosen[np.where(known, name_id, -1)]
