"""What a captured window tells about the GPU, in sentences: for the terminal and the page."""

from __future__ import annotations

from trainscope.report.model_gpu import (
    ChainReport,
    CommunicationReport,
    CopyReport,
    DeviceReport,
    GpuReport,
    LaunchReport,
)
from trainscope.report.wording import count_of, duration, number_ranges

__all__ = [
    "chain",
    "chains",
    "communication",
    "copy_rate",
    "device_times",
    "launches",
    "window_steps",
]

_CHAINS = 3
_COLLECTIVES = 4
_LEAST_RATE = 0.1
"""In GB/s: what is slower moved next to nothing."""
_MANY_TINY = 0.3
"""Share of tiny kernels from which on they and their chains are named."""


def window_steps(gpu: GpuReport) -> str:
    """Which steps it has, and what was taken for one."""
    if not gpu.steps:
        return f"steps: cannot tell: {gpu.steps_found_by}"
    words = f"{count_of(len(gpu.steps), 'step')} ({number_ranges(gpu.steps)}), {gpu.steps_found_by}"
    return words + (", the first left out" if gpu.steps_counted < len(gpu.steps) else "")


def device_times(device: DeviceReport, gpu: GpuReport) -> str:
    """Busy and idle time of one GPU."""
    whole = device.busy_ms_per_step + device.idle_ms_per_step
    share = f" ({device.idle_ms_per_step / whole:.0%})" if whole else ""
    name = f"GPU {device.device}" + (f", {device.name}" if device.name else "")
    span = "a step" if gpu.steps_counted else "in all"
    return (
        f"{name}: {duration(device.busy_ms_per_step)} busy and "
        f"{duration(device.idle_ms_per_step)} idle{share} {span}"
    )


def launches(found: LaunchReport) -> list[str]:
    """What launching costs, how far the CPU is ahead, and whether many kernels are tiny."""
    if not found.launches:
        return []
    words = "1 launch" if found.launches == 1 else f"{found.launches:,} launches"
    if found.launch_share is not None:
        words += f", {found.launch_share:.0%} of the CPU's time in them"
    if found.cpu_lead_ms_median is not None:
        lead_ms = found.cpu_lead_ms_median
        lead = duration(max(lead_ms, 0.0))
        if lead_ms >= 0.1:
            words += f"; the CPU is ahead by {lead} (median)"
        else:
            words += f"; the CPU is not ahead: ops begin {lead} after their launch (median)"
    said = [words]
    if found.queue_empty_share is not None:
        said.append(
            f"at most {count_of(found.queue_deepest, 'op')} in the queue, none in it for "
            f"{found.queue_empty_share:.0%} of the time"
        )
    if _many_are_tiny(found):
        said.append(
            f"{found.tiny_kernels:,} of {count_of(found.kernels, 'kernel')} run for less than "
            f"{found.tiny_below_us:.0f} µs, which is less than a launch takes"
        )
    return said


def chains(found: LaunchReport) -> list[ChainReport]:
    """The chains of tiny kernels that are worth a line."""
    return found.chains[:_CHAINS] if found.launches and _many_are_tiny(found) else []


def chain(found: ChainReport) -> str:
    """One chain, without its advice."""
    where = f" in {found.inside}" if found.inside else ""
    times = f"{found.times:,} times " if found.times > 1 else ""
    return f"{times}{found.kernels} in a row{where}: {found.operators}"


def copy_rate(found: CopyReport) -> str:
    """How fast the copies of one kind were; empty where that is not known."""
    rate = found.gb_per_s
    if rate is None:
        return ""
    return f"{rate:,.1f}" if rate >= _LEAST_RATE else f"< {_LEAST_RATE}"


def communication(talk: CommunicationReport) -> str:
    """The collectives of one GPU, and how much of them computing hides."""
    names = ", ".join(f"{name} x{count:,}" for name, count, _ in talk.by_collective[:_COLLECTIVES])
    return (
        f"GPU {talk.device}: {duration(talk.ms_total)} in {names}; "
        f"{duration(talk.hidden_ms_total)} of it hidden behind other kernels"
    )


def _many_are_tiny(found: LaunchReport) -> bool:
    return found.tiny_share is not None and found.tiny_share >= _MANY_TINY
