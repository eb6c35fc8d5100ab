"""The GPU's sections of a text report: busy and idle, launches, kernels, copies, collectives."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from trainscope.report import gpu_words
from trainscope.report.model import Report
from trainscope.report.model_gpu import GpuReport, LaunchReport
from trainscope.report.text_parts import hanging, heading, plain, table
from trainscope.report.wording import count_of, duration, range_name

__all__ = ["gpu_sections", "lacking_section"]

_OPERATORS = 10
_PHASES = 16
_LITTLE = 0.02
"""Share of a step's time below which a cause of idle time is not worth a line."""


def gpu_sections(report: Report) -> Iterator[RenderableType]:
    """What the captured window tells about the GPU; nothing where there is none."""
    gpu = report.gpu
    if gpu is None:
        return
    yield heading("GPU in the captured window")
    yield hanging("", plain(gpu_words.window_steps(gpu)))
    for device in gpu.devices:
        yield hanging("", plain(gpu_words.device_times(device, gpu)))
    yield from _idle(gpu)
    yield from _phases(gpu)
    yield from _launches(gpu.launches)
    yield from _operators(gpu)
    yield from _copies(gpu)


def lacking_section(report: Report) -> Iterator[RenderableType]:
    """What the captured window lacks, to be read before its numbers."""
    if report.gpu is None or not report.gpu.problems:
        return
    yield heading("What the captured window lacks")
    for problem in report.gpu.problems:
        yield hanging("- ", plain(problem))


def _idle(gpu: GpuReport) -> Iterator[RenderableType]:
    whole = sum(device.busy_ms_per_step + device.idle_ms_per_step for device in gpu.devices)
    shown = [detail for detail in gpu.idle if detail.ms_per_step >= _LITTLE * whole]
    for detail in sorted(shown, key=lambda detail: -detail.ms_per_step):
        yield hanging("- ", plain(f"{duration(detail.ms_per_step)} idle: {detail.words}"))
        if detail.cause != "sync":
            continue
        for site in gpu.syncs:
            if (site.idle_ms_per_step or 0.0) >= _LITTLE * whole:
                spent = duration(site.idle_ms_per_step or 0.0)
                yield hanging("  ", plain(f"{spent} at {site.place} ({site.kind})"), indent=4)


def _phases(gpu: GpuReport) -> Iterator[RenderableType]:
    """CPU and GPU time side by side: where the GPU's is longer, the CPU is not what counts."""
    if len(gpu.phases) < 2:
        return
    yield heading("Phases in the captured window")
    grid = table("phase", "on the CPU", "on the GPU", "steps")
    for phase in gpu.phases[:_PHASES]:
        grid.add_row(
            plain(range_name(phase.name)),
            duration(phase.cpu_ms_per_step.median),
            duration(phase.gpu_ms_per_step.median),
            f"{phase.steps:,}",
        )
    yield grid
    if len(gpu.phases) > _PHASES:
        yield hanging("", f"and {count_of(len(gpu.phases) - _PHASES, 'more phase')}")


def _launches(launches: LaunchReport) -> Iterator[RenderableType]:
    said = gpu_words.launches(launches)
    if said:
        yield heading("Launches")
    for words in said:
        yield hanging("", words)
    for chain in gpu_words.chains(launches):
        yield hanging("- ", plain(gpu_words.chain(chain)))
        yield hanging("→ ", plain(chain.advice), indent=4, style="green")


def _operators(gpu: GpuReport) -> Iterator[RenderableType]:
    if not gpu.operators:
        return
    yield heading("Kernels by operator")
    grid = table("operator", "kernels", "time", "share")
    for operator in gpu.operators[:_OPERATORS]:
        grid.add_row(
            plain(operator.operator),
            f"{operator.count:,}",
            duration(operator.ms_total),
            f"{operator.share:.0%}",
        )
    yield grid
    more = len(gpu.operators) + gpu.operators_left_out - _OPERATORS
    if more > 0:
        yield hanging("", f"and {count_of(more, 'operator')} with less time")
    for operator in gpu.operators[:_OPERATORS]:
        shown = operator.kernel_by_shape[:1]
        shown += [pick for pick in operator.kernel_by_shape if pick[1] != shown[0][1]][:1]
        if len(shown) > 1:
            picks = "; ".join(f"{name} for {shape}" for shape, name in shown)
            yield hanging("- ", plain(f"{operator.operator} picks its kernel by shape: {picks}"))


def _copies(gpu: GpuReport) -> Iterator[RenderableType]:
    if gpu.copies:
        yield heading("Copies")
        grid = table("copies", "count", "time", "GB/s")
        for copy in gpu.copies:
            memory = f", {copy.host_memory}" if copy.host_memory else ""
            rate = gpu_words.copy_rate(copy)
            grid.add_row(f"{copy.what}{memory}", f"{copy.count:,}", duration(copy.ms_total), rate)
        yield grid
    if gpu.communication:
        yield heading("Communication")
    for talk in gpu.communication:
        yield hanging("", plain(gpu_words.communication(talk)))
