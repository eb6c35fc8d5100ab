"""The GPU's part of a report, from a captured window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trainscope.analysis.communication import communication_times
from trainscope.analysis.completeness import incomplete
from trainscope.analysis.copies import copies_by_kind
from trainscope.analysis.examined import Examined
from trainscope.analysis.idle import IdleCause, IdleTimes, find_idle
from trainscope.analysis.kernels import OperatorKernels, kernels_by_operator
from trainscope.analysis.launch_chains import chain_advice, launch_chains
from trainscope.analysis.launches import TINY_NS, first_launch_ns, launch_times, queue_depth
from trainscope.analysis.replay.what_if import WhatIf
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync, by_site
from trainscope.catalogue.advice import advice
from trainscope.catalogue.kinds import KINDS
from trainscope.report.build_phases import as_window_phases
from trainscope.report.build_what_if import gains_by_site
from trainscope.report.model import IdleReport
from trainscope.report.model_gpu import (
    ChainReport,
    CommunicationReport,
    CopyReport,
    DeviceReport,
    GpuReport,
    IdleDetail,
    KernelReport,
    LaunchReport,
    OperatorReport,
    WindowSyncReport,
)
from trainscope.report.model_times import NS_PER_MS
from trainscope.trace.orphans import lost_launches
from trainscope.trace.window import Memory, Window

__all__ = ["MOST_OPERATORS", "as_gpu"]

MOST_OPERATORS = 30
"""Operators in a report, by time: a trace may have thousands of names."""
_MOST_KERNELS = 8
_MOST_SHAPES = 12
_MOST_CHAINS = 10
_MOST_SITES = 200
_WORDS = {
    IdleCause.SYNC: "a sync held the CPU, or the CPU was catching up after it",
    IdleCause.LAUNCH: "the CPU launches too slowly",
    IdleCause.DATA: "the loop waits for data",
    IdleCause.COPY: "the CPU copies between host and GPU",
    IdleCause.COMMUNICATION: "the CPU is in a collective",
    IdleCause.CPU_BEFORE_LAUNCH: "CPU work before the first launch of a step",
    IdleCause.CPU_WORK: "CPU work between launches",
    IdleCause.QUEUED: "the GPU itself, between ops that were already enqueued",
    IdleCause.UNKNOWN: "ops whose launch was not recorded",
}


def as_gpu(captured: Examined, replay: WhatIf | None = None) -> tuple[GpuReport, IdleReport]:
    """What a window tells about the GPU, and its idle time by cause; ``replay`` gives the gains."""
    window, steps, syncs = captured.window, captured.steps, captured.syncs
    idle = find_idle(window, steps, syncs)
    counted = slice(1, None) if idle.by_step and len(steps) > 1 else slice(None)
    many = max(idle.idle_ns[:, counted].shape[1], 1)
    each_ns = idle.cause_ns[:, counted].sum(axis=(0, 1)) / many
    groups = {cause.group: 0.0 for cause in IdleCause}
    for cause in IdleCause:
        groups[cause.group] += float(each_ns[cause]) / NS_PER_MS
    operators = kernels_by_operator(window, steps)
    doubts = list(incomplete(window, steps))
    gpu = GpuReport(
        file=window.file,
        source=window.source,
        steps=steps.number.tolist(),
        steps_found_by=steps.found_by or steps.cannot_tell,
        steps_counted=many if idle.by_step else 0,
        devices=_devices(window, idle, counted, many),
        idle=[
            IdleDetail(
                cause=cause.name.lower(),
                words=_WORDS[cause],
                ms_per_step=float(each_ns[cause]) / NS_PER_MS,
            )
            for cause in IdleCause
            if each_ns[cause]
        ],
        phases=as_window_phases(window, steps),
        first_launch_ms=_first_launch_ms(window, steps, counted),
        syncs=_syncs(steps, syncs, idle, gains_by_site(replay), counted, many),
        operators=[_operator(operator) for operator in operators[:MOST_OPERATORS]],
        operators_left_out=max(len(operators) - MOST_OPERATORS, 0),
        launches=_launches(window, steps, idle),
        copies=_copies(window),
        communication=_communication(window),
        problems=[*doubts, *window.problems],
        incomplete=doubts,
    )
    return gpu, IdleReport(per_step_ms=float(each_ns.sum()) / NS_PER_MS, causes=dict(groups))  # pyright: ignore[reportArgumentType]


def _first_launch_ms(window: Window, steps: WindowSteps, counted: slice) -> float | None:
    after_ns = first_launch_ns(window, steps)[counted]
    after_ns = after_ns[after_ns >= 0]
    return float(np.median(after_ns)) / NS_PER_MS if len(after_ns) else None


def _devices(window: Window, idle: IdleTimes, counted: slice, many: int) -> list[DeviceReport]:
    return [
        DeviceReport(
            device=device,
            name=window.devices[device] if 0 <= device < len(window.devices) else None,
            busy_ms_per_step=float(idle.busy_ns[line, counted].sum()) / many / NS_PER_MS,
            idle_ms_per_step=float(idle.idle_ns[line, counted].sum()) / many / NS_PER_MS,
        )
        for line, device in enumerate(idle.devices)
    ]


def _syncs(
    steps: WindowSteps,
    syncs: Sequence[WindowSync],
    idle: IdleTimes,
    gains_ms: Mapping[WindowSite, float],
    counted: slice,
    many: int,
) -> list[WindowSyncReport]:
    pieces = idle.pieces
    first = counted.start or 0
    blamed = (pieces.sync >= 0) & (pieces.step >= first)
    each_ns = np.zeros(max(len(syncs), 1), dtype=np.int64)
    np.add.at(each_ns, pieces.sync[blamed], (pieces.end_ns - pieces.start_ns)[blamed])
    place = {id(sync): i for i, sync in enumerate(syncs)}
    found = []
    for site, waits in list(by_site(syncs).items())[:_MOST_SITES]:
        idle_ns = sum(int(each_ns[place[id(wait)]]) for wait in waits)
        kind = KINDS.get(site.kind)
        found.append(
            WindowSyncReport(
                place=site.place,
                kind=site.kind,
                code=kind.code if kind else None,
                file=site.file,
                line=site.line,
                line_is=site.line_is,
                phase=site.phase,
                thread=site.thread,
                waits=len(waits),
                per_step=site.per_step if site.in_steps else None,
                did_not_block=sum(not wait.blocked for wait in waits),
                blocked_ms_total=sum(wait.blocked_ns for wait in waits) / NS_PER_MS,
                idle_ms_per_step=idle_ns / many / NS_PER_MS if len(steps) else None,
                gain_ms_per_step=gains_ms.get(site),
                advice=_advice(site),
            )
        )
    return sorted(found, key=lambda site: -(site.idle_ms_per_step or 0.0))


def _advice(site: WindowSite) -> str:
    if site.live is not None:
        return site.live.advice
    if site.kind not in KINDS:
        return ""
    return advice(site.kind, source="", phase=site.phase, during="training", via=None)


def _operator(operator: OperatorKernels) -> OperatorReport:
    return OperatorReport(
        operator=operator.operator,
        count=operator.count,
        ms_total=operator.total_ns / NS_PER_MS,
        share=operator.share,
        kernels=[
            KernelReport(
                name=use.kernel,
                shape=use.shape,
                count=use.count,
                ms_total=use.total_ns / NS_PER_MS,
                us_median=use.median_ns / 1e3,
            )
            for use in operator.uses[:_MOST_KERNELS]
        ],
        kernels_left_out=max(len(operator.uses) - _MOST_KERNELS, 0),
        kernel_by_shape=list(operator.kernel_by_shape[:_MOST_SHAPES]),
    )


def _launches(window: Window, steps: WindowSteps, idle: IdleTimes) -> LaunchReport:
    times = launch_times(window, steps)
    depths = [queue_depth(window, device) for device in idle.devices]
    empty = [
        share
        for line, depth in enumerate(depths)
        if (share := depth.share_empty(int(idle.start_ns[line, 0]), int(idle.end_ns[line, -1])))
        is not None
    ]
    return LaunchReport(
        launches=times.launches,
        lost=lost_launches(window),
        kernels=times.kernels,
        tiny_kernels=times.tiny_kernels,
        tiny_below_us=TINY_NS / 1e3,
        tiny_share=times.tiny_share,
        launch_share=times.launch_share,
        cpu_lead_ms_median=(
            float(np.median(times.lead_ns)) / NS_PER_MS if len(times.lead_ns) else None
        ),
        queue_deepest=max((depth.deepest for depth in depths), default=0),
        queue_empty_share=float(np.mean(empty)) if empty else None,
        chains=[
            ChainReport(
                operators=chain.words,
                inside=chain.inside,
                kernels=chain.kernels,
                times=chain.times,
                gpu_ms_total=chain.gpu_ns / NS_PER_MS,
                advice=chain_advice(chain),
            )
            for chain in launch_chains(window, steps)[:_MOST_CHAINS]
        ],
    )


def _copies(window: Window) -> list[CopyReport]:
    memories = {Memory.PAGEABLE: "pageable", Memory.PINNED: "pinned"}
    return [
        CopyReport(
            what=copies.title,
            host_memory=memories.get(copies.host_memory) if copies.host_memory else None,
            count=copies.count,
            ms_total=copies.total_ns / NS_PER_MS,
            bytes_moved=copies.bytes_moved,
            gb_per_s=copies.gb_per_s,
            alone_ms_total=copies.alone_ns / NS_PER_MS,
        )
        for copies in copies_by_kind(window)
    ]


def _communication(window: Window) -> list[CommunicationReport]:
    return [
        CommunicationReport(
            device=times.device,
            count=times.count,
            ms_total=times.total_ns / NS_PER_MS,
            hidden_ms_total=times.hidden_ns / NS_PER_MS,
            exposed_ms_total=times.exposed_ns / NS_PER_MS,
            by_collective=[
                (name, count, spent_ns / NS_PER_MS) for name, count, spent_ns in times.by_collective
            ],
        )
        for times in communication_times(window)
    ]
