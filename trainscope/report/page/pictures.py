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
    phase_rows,
)
from trainscope.report.page.replay_pictures import ReplayPictures
from trainscope.report.page.timeline import Labels, Lane, Picture, Timeline, depth_lane, lane_of
from trainscope.report.wording import count_of
from trainscope.trace.window import Window

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
        count = count_of(len(steps), "step")
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
                names_of(window, gpu.name_id[rows]),
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
    names = names_of(window, window.ranges.name_id[rows])
    return lane_of(
        "phases",
        window.ranges.start_ns[rows] - zero_ns,
        window.ranges.end_ns[rows] - zero_ns,
        [kind_of_phase(name) for name in names],
        names,
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
    ops = window.ops
    top = np.flatnonzero(np.isin(ops.thread, threads) & (depths(ops) == 0))
    start, end = ops.start_ns[top], ops.end_ns[top]
    names = names_of(window, ops.name_id[top])
    waits = [sync for sync in syncs if sync.thread in threads and sync.blocked]
    calls = window.calls
    other = np.flatnonzero(np.isin(calls.thread, threads))
    if not len(top):
        start, end = calls.start_ns[other], calls.end_ns[other]
        names = names_of(window, calls.name_id[other])
    parts = [(int(s), int(e), "op", n) for s, e, n in zip(start, end, names, strict=True)]
    for sync in waits:
        cut: list[tuple[int, int, str, str]] = []
        for begin, finish, kind, label in parts:
            if kind == "op" and begin < sync.end_ns and finish > sync.start_ns:
                cut.append((begin, sync.start_ns, kind, label))
                cut.append((sync.end_ns, finish, kind, label))
            else:
                cut.append((begin, finish, kind, label))
        parts = [part for part in cut if part[1] > part[0]]
        parts.append((sync.start_ns, sync.end_ns, "wait", f"waits: {sync.site.place}"))
    if not parts:
        return None
    parts.sort()
    return lane_of(
        name,
        np.array([part[0] for part in parts]) - zero_ns,
        np.array([part[1] for part in parts]) - zero_ns,
        [part[2] for part in parts],
        [part[3][:LONGEST_NAME] for part in parts],
        labels=labels,
        until_ns=length_ns,
    )


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
