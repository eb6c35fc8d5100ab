"""What the spans of the pictures are called, and of which kind they are."""

from __future__ import annotations

import re

import numpy as np

from trainscope.analysis.nesting import depths
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Column, OpKind, Window

__all__ = [
    "LONGEST_NAME",
    "MAX_LANES",
    "kind_of_phase",
    "kinds_of_ops",
    "names_of",
    "phase_rows",
]

LONGEST_NAME = 120
MAX_LANES = 24
"""Streams drawn."""
_OP_KINDS = {OpKind.KERNEL: "kernel", OpKind.COPY: "copy", OpKind.SET: "set"}
_PHASES = {
    "forward": r"forward",
    "backward": r"backward",
    "optimizer": r"optimizer",
    "h2d": r"h2d",
    "data": r"data(?! ?parallel)|loader",
}
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def names_of(window: Window, name_id: Column) -> list[str]:
    """Names by their places, cut to ``LONGEST_NAME``."""
    return [window.names[place][:LONGEST_NAME] for place in name_id.tolist()]


def kinds_of_ops(window: Window, rows: Column) -> list[str]:
    """The kind of each GPU op."""
    names = names_of(window, window.gpu.name_id[rows])
    return [
        "collective" if "nccl" in name.lower() else _OP_KINDS[OpKind(int(kind))]
        for kind, name in zip(window.gpu.kind[rows], names, strict=True)
    ]


def kind_of_phase(name: str) -> str:
    """The known phase that a word of a range's name tells of; ``phase`` for none."""
    words = _CAMEL.sub(" ", name[:LONGEST_NAME]).lower()
    return next(
        (phase for phase, word in _PHASES.items() if re.search(rf"(?<![a-z])(?:{word})", words)),
        "phase",
    )


def phase_rows(window: Window, steps: WindowSteps) -> Column:
    """The ranges directly inside the steps on the loop's thread; the steps where there are none."""
    ranges = window.ranges
    depth = depths(ranges)
    on_thread = ranges.thread == steps.thread
    inside = steps.at(ranges.start_ns) >= 0
    step_depth = int(depth[steps.rows[0]]) if steps.rows is not None and len(steps.rows) else -1
    rows = np.flatnonzero(on_thread & inside & (depth == step_depth + 1))
    return steps.rows if not len(rows) and steps.rows is not None else rows
