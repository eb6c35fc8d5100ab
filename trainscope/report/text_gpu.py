"""The GPU's sections of a text report: busy and idle, launches, kernels, copies, collectives."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from trainscope.report.model import Report
from trainscope.report.model_gpu import GpuReport, LaunchReport
from trainscope.report.text_parts import hanging, heading, number_ranges, plain, table
from trainscope.report.wording import count_of, duration

__all__ = ["gpu_sections", "lacking_section"]

_OPERATORS = 10
_CHAINS = 3
_PHASES = 16
_LITTLE = 0.02
"""Share of a step's time below which a cause of idle time is not worth a line."""
_MANY_TINY = 0.3
"""Share of tiny kernels from which on their chains are named."""


def gpu_sections(report: Report) -> Iterator[RenderableType]:
    """What the captured window tells about the GPU; nothing where there is none."""
    gpu = report.gpu
    if gpu is None:
        return
    yield heading("GPU in the captured window")
    yield hanging("", plain(_which(gpu)))
    for device in gpu.devices:
        whole = device.busy_ms_per_step + device.idle_ms_per_step
        share = f" ({device.idle_ms_per_step / whole:.0%})" if whole else ""
        name = f"GPU {device.device}" + (f", {device.name}" if device.name else "")
        span = "a step" if gpu.steps_counted else "in all"
        yield hanging(
            "",
            plain(
                f"{name}: {duration(device.busy_ms_per_step)} busy and "
                f"{duration(device.idle_ms_per_step)} idle{share} {span}"
            ),
        )
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


def _which(gpu: GpuReport) -> str:
    if not gpu.steps:
        return f"steps: cannot tell: {gpu.steps_found_by}"
    words = f"{count_of(len(gpu.steps), 'step')} ({number_ranges(gpu.steps)}), {gpu.steps_found_by}"
    return words + (", the first left out" if gpu.steps_counted < len(gpu.steps) else "")


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
            plain(phase.name),
            duration(phase.cpu_ms_per_step.median),
            duration(phase.gpu_ms_per_step.median),
            f"{phase.steps:,}",
        )
    yield grid
    if len(gpu.phases) > _PHASES:
        yield hanging("", f"and {count_of(len(gpu.phases) - _PHASES, 'more phase')}")


def _launches(launches: LaunchReport) -> Iterator[RenderableType]:
    if not launches.launches:
        return
    yield heading("Launches")
    words = "1 launch" if launches.launches == 1 else f"{launches.launches:,} launches"
    if launches.launch_share is not None:
        words += f", {launches.launch_share:.0%} of the CPU's time in them"
    if launches.cpu_lead_ms_median is not None:
        lead_ms = launches.cpu_lead_ms_median
        ahead = "the CPU is ahead by" if lead_ms >= 0.1 else "the CPU is not ahead:"
        words += f"; {ahead} {duration(max(lead_ms, 0.0))} (median)"
    yield hanging("", words)
    if launches.queue_empty_share is not None:
        yield hanging(
            "",
            f"at most {count_of(launches.queue_deepest, 'op')} in the queue, none in it for "
            f"{launches.queue_empty_share:.0%} of the time",
        )
    if launches.tiny_share is None or launches.tiny_share < _MANY_TINY:
        return
    yield hanging(
        "",
        f"{launches.tiny_kernels:,} of {count_of(launches.kernels, 'kernel')} run for less than "
        f"{launches.tiny_below_us:.0f} µs, which is less than a launch takes",
    )
    for chain in launches.chains[:_CHAINS]:
        where = f" in {chain.inside}" if chain.inside else ""
        times = f"{chain.times:,} times " if chain.times > 1 else ""
        yield hanging("- ", plain(f"{times}{chain.kernels} in a row{where}: {chain.operators}"))
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
            rate = "" if copy.gb_per_s is None else f"{copy.gb_per_s:.1f}"
            grid.add_row(f"{copy.what}{memory}", f"{copy.count:,}", duration(copy.ms_total), rate)
        yield grid
    if gpu.communication:
        yield heading("Communication")
    for talk in gpu.communication:
        names = ", ".join(f"{name} x{count:,}" for name, count, _ in talk.by_collective[:4])
        yield hanging(
            "",
            plain(
                f"GPU {talk.device}: {duration(talk.ms_total)} in {names}; "
                f"{duration(talk.hidden_ms_total)} of it hidden behind other kernels"
            ),
        )
