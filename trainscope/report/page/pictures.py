"""The pictures of a step: as recorded, and as replayed with and without its syncs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainscope.analysis.examined import Examined
from trainscope.analysis.idle import IdleCause, find_idle
from trainscope.analysis.launches import queue_depth
from trainscope.analysis.nesting import depths
from trainscope.analysis.replay.what_if import WhatIf
from trainscope.analysis.thread_roles import AUTOGRAD, MAIN, thread_roles
from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.report.page.names import (
    LONGEST_NAME,
    MAX_LANES,
    kind_of_phase,
    kinds_of_ops,
    names_of,
    names_of_ops,
    phase_rows,
)
from trainscope.report.page.replay_pictures import ReplayPictures
from trainscope.report.page.timeline import Labels, Lane, Picture, Timeline, depth_lane, lane_of
from trainscope.report.wording import count_of, range_name
from trainscope.trace.window import Calls, Spans, Window

__all__ = ["MAX_STEPS", "timeline"]

MAX_STEPS = 4
"""Recorded steps drawn."""


def timeline(captured: Examined, replay: WhatIf | None) -> Timeline | None:
    """The pictures of a window's first steps; None where it has no step."""
    window, steps, syncs = captured.window, captured.steps, captured.syncs
    if not len(steps):
        return None
    labels = Labels()
    pictures = [_recorded(window, steps, syncs, labels)]
    if replay is not None and replay.before is not None and replay.after is not None:
        draw = ReplayPictures(window, steps, syncs, replay, labels)
        count = count_of(replay.before.program.steps, "step")
        pictures.append(draw.picture(f"Replayed with its syncs, {count}", replay.before.drawn()))
        pictures.append(draw.picture(f"Replayed without them, {count}", replay.after.drawn()))
    return Timeline(labels.all(), tuple(pictures))


def _recorded(
    window: Window, steps: WindowSteps, syncs: Sequence[WindowSync], labels: Labels
) -> Picture:
    last = min(len(steps), MAX_STEPS) - 1
    zero_ns = int(steps.start_ns[0])
    gpu = window.gpu
    of_op = steps.of_ops(window)
    mine = (of_op >= 0) & (of_op <= last)
    until_ns = max(
        int(steps.until_ns[last]), int(gpu.end_ns[mine].max()) if mine.any() else zero_ns
    )
    length_ns = until_ns - zero_ns
    roles = thread_roles(window, steps)
    lanes: list[Lane] = [_phases(window, steps, zero_ns, length_ns, labels)]
    for role, name in ((MAIN, "loop's thread"), (AUTOGRAD, "autograd's thread")):
        threads = [place for place, each in enumerate(roles) if each == role]
        lane = _cpu(window, threads, syncs, zero_ns, length_ns, labels, name)
        if lane is not None:
            lanes.append(lane)
    shown = (gpu.end_ns > zero_ns) & (gpu.start_ns < until_ns)
    pairs = sorted(set(zip(gpu.device[shown].tolist(), gpu.stream[shown].tolist(), strict=True)))
    devices = len({device for device, _ in pairs})
    for device, stream in pairs[:MAX_LANES]:
        rows = np.flatnonzero(shown & (gpu.device == device) & (gpu.stream == stream))
        lanes.append(
            lane_of(
                f"GPU {device}, stream {stream}" if devices > 1 else f"stream {stream}",
                gpu.start_ns[rows] - zero_ns,
                gpu.end_ns[rows] - zero_ns,
                kinds_of_ops(window, rows),
                names_of_ops(window, rows),
                labels=labels,
                until_ns=length_ns,
            )
        )
    for device in sorted({device for device, _ in pairs})[:MAX_LANES]:
        queue = queue_depth(window, device)
        name = "queue" if devices == 1 else f"GPU {device} queue"
        lane = depth_lane(
            name, queue.time_ns - zero_ns, queue.depth, labels=labels, until_ns=length_ns
        )
        lanes += [lane] if lane is not None else []
    lanes += _idle(window, steps, syncs, zero_ns, length_ns, labels)
    what = "step" if last == 0 else f"{last + 1} steps"
    ends_ns = (steps.until_ns[: last + 1] - zero_ns).tolist()
    note = "the profiler slows the CPU"
    return Picture(f"As recorded, {what}", note, length_ns, tuple(lanes), ends_ns)


def _phases(
    window: Window, steps: WindowSteps, zero_ns: int, length_ns: int, labels: Labels
) -> Lane:
    rows = phase_rows(window, steps)
    rows = rows[window.ranges.start_ns[rows] < zero_ns + length_ns]
    names = names_of(window, window.ranges.name_id[rows])
    return lane_of(
        "phases",
        window.ranges.start_ns[rows] - zero_ns,
        window.ranges.end_ns[rows] - zero_ns,
        [kind_of_phase(name) for name in names],
        [range_name(name) for name in names],
        labels=labels,
        until_ns=length_ns,
    )


def _cpu(
    window: Window,
    threads: Sequence[int],
    syncs: Sequence[WindowSync],
    zero_ns: int,
    length_ns: int,
    labels: Labels,
    name: str,
) -> Lane | None:
    """Outermost operators, and the waits that cut them."""
    spans = _outermost(window, threads, zero_ns, zero_ns + length_ns)
    start, end = spans.start_ns, spans.end_ns
    names = names_of(window, spans.name_id)
    waits = [
        sync
        for sync in syncs
        if sync.thread in threads and sync.blocked and sync.start_ns < zero_ns + length_ns
    ]
    if not len(start) and not waits:
        return None
    begins = np.array([sync.start_ns for sync in waits], dtype=np.int64)
    ends = np.array([sync.end_ns for sync in waits], dtype=np.int64)
    # what goes on after a wait is a span of its own; the lane cuts the first part where it begins
    around = np.searchsorted(start, begins, side="right") - 1
    goes_on = (around >= 0) & (end[around] > ends) if len(start) else np.zeros(len(waits), bool)
    rest = around[goes_on]
    return lane_of(
        name,
        np.concatenate((start, ends[goes_on], begins)) - zero_ns,
        np.concatenate((end, end[rest], ends)) - zero_ns,
        ["op"] * (len(start) + len(rest)) + ["wait"] * len(waits),
        [
            *names,
            *(names[place] for place in rest.tolist()),
            *(f"waits: {sync.site.place}"[:LONGEST_NAME] for sync in waits),
        ],
        labels=labels,
        until_ns=length_ns,
    )


def _outermost(
    window: Window, threads: Sequence[int], zero_ns: int, until_ns: int
) -> Spans | Calls:
    """The outermost operators of threads; their calls where no operators are recorded."""
    ops, calls = window.ops, window.calls
    top = np.flatnonzero(np.isin(ops.thread, threads) & (depths(ops) == 0))
    found = ops.take(top) if len(top) else calls.take(np.isin(calls.thread, threads))
    return found.take((found.end_ns > zero_ns) & (found.start_ns < until_ns))


def _idle(
    window: Window,
    steps: WindowSteps,
    syncs: Sequence[WindowSync],
    zero_ns: int,
    length_ns: int,
    labels: Labels,
) -> list[Lane]:
    pieces = find_idle(window, steps, syncs).pieces
    lanes = []
    for device in np.unique(pieces.device):
        rows = np.flatnonzero(pieces.device == device)
        causes = [IdleCause(int(cause)) for cause in pieces.cause[rows]]
        texts = [
            f"idle: {syncs[sync].site.place}" if sync >= 0 else f"idle: {_words(cause)}"
            for cause, sync in zip(causes, pieces.sync[rows].tolist(), strict=True)
        ]
        lanes.append(
            lane_of(
                "GPU idle" if len(np.unique(pieces.device)) == 1 else f"GPU {device} idle",
                pieces.start_ns[rows] - zero_ns,
                pieces.end_ns[rows] - zero_ns,
                [f"idle {cause.group}" for cause in causes],
                texts,
                labels=labels,
                until_ns=length_ns,
            )
        )
    return lanes


def _words(cause: IdleCause) -> str:
    return cause.name.lower().replace("_", " ").replace("cpu", "CPU")
