"""The pictures of a step: as recorded, and as replayed with and without its syncs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainscope.analysis.examined import Examined
from trainscope.analysis.idle import IdleCause, find_idle
from trainscope.analysis.nesting import depths
from trainscope.analysis.replay.drawing import Drawn
from trainscope.analysis.replay.what_if import WhatIf
from trainscope.analysis.thread_roles import AUTOGRAD, MAIN, thread_roles
from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.report.page.timeline import Labels, Lane, Picture, Timeline, lane_of
from trainscope.trace.window import Column, OpKind, Window

__all__ = ["MAX_STEPS", "timeline"]

MAX_STEPS = 4
"""Recorded steps drawn."""
_OP_KINDS = {OpKind.KERNEL: "kernel", OpKind.COPY: "copy", OpKind.SET: "set"}
_PHASES = ("data", "h2d", "forward", "backward", "optimizer")
_MAX_LANES = 24
_LONGEST_NAME = 120


def timeline(captured: Examined, replay: WhatIf | None) -> Timeline | None:
    """The pictures of a window's first steps; None where it has no step."""
    window, steps, syncs = captured.window, captured.steps, captured.syncs
    if not len(steps):
        return None
    labels = Labels()
    pictures = [_recorded(window, steps, syncs, labels)]
    if replay is not None and replay.before is not None and replay.after is not None:
        before = _replayed(window, replay, replay.before, syncs, labels)
        after = _replayed(window, replay, replay.after, syncs, labels)
        count = len(steps)
        pictures += [
            Picture(f"Replayed with its syncs, {count} steps", "", *before),
            Picture(f"Replayed without them, {count} steps", "", *after),
        ]
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
    for device, stream in pairs[:_MAX_LANES]:
        rows = np.flatnonzero(shown & (gpu.device == device) & (gpu.stream == stream))
        lanes.append(
            lane_of(
                f"GPU {device}, stream {stream}" if devices > 1 else f"stream {stream}",
                gpu.start_ns[rows] - zero_ns,
                gpu.end_ns[rows] - zero_ns,
                _kinds(window, rows),
                _names(window, gpu.name_id[rows]),
                labels=labels,
                until_ns=length_ns,
            )
        )
    lanes += _idle(window, steps, syncs, zero_ns, length_ns, labels)
    what = "step" if last == 0 else f"{last + 1} steps"
    return Picture(f"As recorded, {what}", "the profiler slows the CPU", length_ns, tuple(lanes))


def _phases(
    window: Window, steps: WindowSteps, zero_ns: int, length_ns: int, labels: Labels
) -> Lane:
    """The ranges directly inside the steps on the loop's thread; the steps where there are none."""
    ranges = window.ranges
    depth = depths(ranges)
    on_thread = ranges.thread == steps.thread
    inside = steps.at(ranges.start_ns) >= 0
    step_depth = int(depth[steps.rows[0]]) if steps.rows is not None and len(steps.rows) else -1
    rows = np.flatnonzero(on_thread & inside & (depth == step_depth + 1))
    if not len(rows) and steps.rows is not None:
        rows = steps.rows
    names = _names(window, ranges.name_id[rows])
    kinds = [next((p for p in _PHASES if p in name.lower()), "phase") for name in names]
    return lane_of(
        "phases",
        ranges.start_ns[rows] - zero_ns,
        ranges.end_ns[rows] - zero_ns,
        kinds,
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
    names = _names(window, ops.name_id[top])
    waits = [sync for sync in syncs if sync.thread in threads and sync.blocked]
    calls = window.calls
    other = np.flatnonzero(np.isin(calls.thread, threads))
    if not len(top):
        start, end = calls.start_ns[other], calls.end_ns[other]
        names = _names(window, calls.name_id[other])
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
        [part[3][:_LONGEST_NAME] for part in parts],
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


def _replayed(
    window: Window, replay: WhatIf, drawn: Drawn, syncs: Sequence[WindowSync], labels: Labels
) -> tuple[int, tuple[Lane, ...]]:
    """Length and lanes of a replay."""
    length_ns = drawn.length_ns
    names = dict(enumerate(window.names))
    site_of = {sync.call: sync.site.place for sync in syncs}
    calls = window.calls
    start = np.concatenate((drawn.cpu_start_ns, drawn.wait_start_ns))
    end = np.concatenate((drawn.cpu_end_ns, drawn.wait_end_ns))
    kinds = ["op"] * len(drawn.cpu_start_ns) + ["wait"] * len(drawn.wait_start_ns)
    texts = [
        f"CPU, up to {names.get(int(calls.name_id[call]), '?')}" if call >= 0 else "CPU"
        for call in drawn.cpu_call.tolist()
    ] + [f"waits: {site_of.get(call, '')}" for call in drawn.wait_call.tolist()]
    lanes = [lane_of("CPU", start, end, kinds, texts, labels=labels, until_ns=length_ns)]
    for place, (device, stream) in enumerate(replay.lanes[:_MAX_LANES]):
        rows = np.flatnonzero(drawn.gpu_lane == place)
        if len(rows):
            op = drawn.gpu_op[rows]
            lanes.append(
                lane_of(
                    f"GPU {device}, stream {stream}" if len(replay.lanes) > 1 else "GPU",
                    drawn.gpu_start_ns[rows],
                    drawn.gpu_end_ns[rows],
                    _kinds(window, op),
                    _names(window, window.gpu.name_id[op]),
                    labels=labels,
                    until_ns=length_ns,
                )
            )
    return length_ns, tuple(lanes)


def _kinds(window: Window, rows: Column) -> list[str]:
    names = _names(window, window.gpu.name_id[rows])
    return [
        "collective" if "nccl" in name.lower() else _OP_KINDS[OpKind(int(kind))]
        for kind, name in zip(window.gpu.kind[rows], names, strict=True)
    ]


def _names(window: Window, name_id: Column) -> list[str]:
    return [window.names[place][:_LONGEST_NAME] for place in name_id.tolist()]
