"""Calls of a window in which a CPU thread waits for the GPU, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.launched_by import ops_of_calls, values_at
from trainscope.analysis.nesting import Around
from trainscope.analysis.wait_calls import WaitCall, wait_call
from trainscope.analysis.waited_for import waited_for, which_blocked
from trainscope.trace.window import Column, CopyKind, Memory, OpKind, Window

__all__ = ["Waits", "find_waits"]

_APART_NS = 50_000
"""Where operators are not recorded, a wait so soon after a copy is the copy's."""


@dataclass(frozen=True, eq=False)
class Waits:
    """Waits in the order of their starts; a copy and the wait that follows in its operator are one.

    ``call``, ``copy_call`` are rows of ``Window.calls``, ``copy_op`` of ``Window.gpu``, ``inside``
    the innermost operator's of ``Window.ops``; -1 for none.
    """

    start_ns: Column
    end_ns: Column
    thread: Column
    wait_call: Column
    """A ``WaitCall``."""
    call: Column
    copy_call: Column
    copy_op: Column
    device: Column
    stream: Column
    inside: Column
    blocked: NDArray[np.bool_]
    """Whether the GPU still had work that it waits for when it began; else it returned at once."""

    def __len__(self) -> int:
        return len(self.start_ns)


def find_waits(window: Window) -> Waits:
    """Every wait of a CPU thread: for a stream, an event, the device, or in a copy.

    A ``cudaMemcpyAsync`` that no wait follows counts where it was held until the GPU came to it,
    ``cudaFree`` where it blocked.
    """
    calls, gpu = window.calls, window.gpu
    kinds = np.array([wait_call(name) for name in window.names] or [0], dtype=np.int64)
    known = (calls.name_id >= 0) & (calls.name_id < len(window.names))
    kind = np.where(known, kinds[np.where(known, calls.name_id, 0)], 0)
    rows = np.flatnonzero((kind > 0) & (calls.thread >= 0))
    rows = rows[np.lexsort((rows, calls.thread[rows]))]
    kind = kind[rows]
    thread, start_ns, end_ns = calls.thread[rows], calls.start_ns[rows], calls.end_ns[rows]
    inside = Around(window.ops).innermost(thread, start_ns, end_ns)
    op = ops_of_calls(window)[rows]
    is_copy = op >= 0
    if len(gpu):
        is_copy &= gpu.kind[np.maximum(op, 0)] == OpKind.COPY
    copies = is_copy & np.isin(kind, (WaitCall.COPY, WaitCall.COPY_ASYNC))

    near = np.where(
        inside[1:] >= 0,
        inside[1:] == inside[:-1],
        (inside[:-1] < 0) & (start_ns[1:] - end_ns[:-1] < _APART_NS),
    )
    joined, taken = _copies_and_their_waits(kind, copies, thread, near)

    first = np.arange(len(rows)) - joined
    copy_call = np.where(copies[first], rows[first], -1) if len(rows) else rows
    copy_op = np.where(copies[first], op[first], -1) if len(rows) else rows
    device, stream = waited_for(window, rows, kind, copy_op)
    began_ns = start_ns[first]
    blocked, held = which_blocked(window, rows, kind, copy_op, began_ns, device, stream)
    pageable = values_at(gpu.host_memory, copy_op) != Memory.PINNED
    moved = np.isin(values_at(gpu.copy_kind, copy_op), (CopyKind.H2D, CopyKind.D2H))
    counts = np.isin(kind, (WaitCall.STREAM, WaitCall.EVENT, WaitCall.DEVICE))
    counts |= (kind == WaitCall.COPY) & (values_at(gpu.copy_kind, copy_op) != CopyKind.D2D)
    counts |= (kind == WaitCall.COPY_ASYNC) & copies & pageable & moved & held & blocked
    counts |= (kind == WaitCall.FREE) & blocked
    keep = np.flatnonzero(counts & ~taken)
    keep = keep[np.argsort(began_ns[keep], kind="stable")]
    return Waits(
        start_ns=began_ns[keep],
        end_ns=end_ns[keep],
        thread=thread[keep],
        wait_call=kind[keep],
        call=rows[keep],
        copy_call=copy_call[keep],
        copy_op=copy_op[keep],
        device=device[keep],
        stream=stream[keep],
        inside=inside[keep],
        blocked=blocked[keep],
    )


def _copies_and_their_waits(
    kind: Column, copies: NDArray[np.bool_], thread: Column, near: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which are a stream wait that belongs to the copy before it, and which are such copies.

    ``near`` says of each but the first whether it follows the one before it closely enough.
    """
    joined = np.zeros(len(kind), dtype=bool)
    joined[1:] = (kind[1:] == WaitCall.STREAM) & copies[:-1] & (thread[1:] == thread[:-1]) & near
    return joined, np.roll(joined, -1)  # the first is never joined
