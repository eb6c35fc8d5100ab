"""What the spans of the pictures are called, and of which kind they are."""

from __future__ import annotations

import re

import numpy as np

from trainscope.analysis.communication import collectives
from trainscope.analysis.kernel_names import short_name
from trainscope.analysis.nesting import depths
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Column, OpKind, Window

__all__ = [
    "LONGEST_NAME",
    "MAX_LANES",
    "kind_of_phase",
    "kinds_of_ops",
    "names_of",
    "names_of_ops",
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


def names_of_ops(window: Window, rows: Column) -> list[str]:
    """What GPU ops are called: the bare names of kernels, whose own may be lines long."""
    known = {
        place: short_name(window.names[place]) for place in set(window.gpu.name_id[rows].tolist())
    }
    return [known[place] for place in window.gpu.name_id[rows].tolist()]


def kinds_of_ops(window: Window, rows: Column) -> list[str]:
    """The kind of each GPU op."""
    talks = collectives(window)[rows]
    return [
        "collective" if talking else _OP_KINDS[OpKind(kind)]
        for kind, talking in zip(window.gpu.kind[rows].tolist(), talks.tolist(), strict=True)
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
