"""What a replay does in the recorded steps, as spans to be drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainscope.analysis.replay.machine import run_for_drawing
from trainscope.analysis.replay.program import Program
from trainscope.analysis.replay.samples import Samples
from trainscope.trace.window import Column

__all__ = ["Drawable", "Drawn"]


@dataclass(frozen=True, eq=False)
class Drawn:
    """What happens while the GPU does the steps once, in the steady state; times in ns.

    The CPU may be ahead, so what it does then may be for later steps.
    """

    length_ns: int
    cpu_start_ns: Column
    cpu_end_ns: Column
    cpu_call: Column
    """Row in ``Window.calls`` of the call at its end; -1 for none."""
    wait_start_ns: Column
    wait_end_ns: Column
    wait_call: Column
    gpu_start_ns: Column
    gpu_end_ns: Column
    gpu_op: Column
    """Row in ``Window.gpu``."""
    gpu_lane: Column
    """Place in ``Program.lanes``."""


@dataclass(frozen=True, eq=False)
class Drawable:
    """A program and one guess: drawn only when asked for, which takes longer than a forecast."""

    program: Program
    guess: Samples

    def drawn(self) -> Drawn:
        """A settled turn."""
        return _draw(self.program, self.guess)


def _draw(program: Program, guess: Samples) -> Drawn:
    spans, length_ns = run_for_drawing(program, guess)
    items = program.items
    cpu, waits, gpu = _Columns(spans.cpu), _Columns(spans.waits), _Columns(spans.gpu)
    return Drawn(
        length_ns=int(length_ns),
        cpu_start_ns=cpu.start,
        cpu_end_ns=cpu.end,
        cpu_call=np.array([items[row].call for row in cpu.place], dtype=np.int64),
        wait_start_ns=waits.start,
        wait_end_ns=waits.end,
        wait_call=np.array([items[row].call for row in waits.place], dtype=np.int64),
        gpu_start_ns=gpu.start,
        gpu_end_ns=gpu.end,
        gpu_op=np.array([items[row].op for row in gpu.place], dtype=np.int64),
        gpu_lane=np.array([items[row].lane for row in gpu.place], dtype=np.int64),
    )


class _Columns:
    def __init__(self, rows: list[tuple[float, float, int]]) -> None:
        self.start = np.array([row[0] for row in rows], dtype=np.float64).round().astype(np.int64)
        self.end = np.array([row[1] for row in rows], dtype=np.float64).round().astype(np.int64)
        self.place = [row[2] for row in rows]
