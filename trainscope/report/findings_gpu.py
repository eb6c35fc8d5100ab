"""What a captured window says beyond its syncs: GPU idle time, data, copies, launches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainscope.catalogue.idle_findings import IDLE_FINDINGS
from trainscope.report.model import Finding, IdleReport
from trainscope.report.model_gpu import GpuReport
from trainscope.report.wording import count_of, duration

__all__ = ["MIN_SHARE", "gpu_findings"]

MIN_SHARE = 0.05
"""Share of a step from which on lost time is a finding."""
_MANY_TINY = 0.3
_SMALL_BYTES = 64 * 1024
"""A copy of fewer takes about as long as one of a byte: microseconds to start it."""
_NO_TENSOR_CORES = re.compile(r"simt_sgemm|(?<![a-z])sgemm_\d|_f32f32_f32f32_f32_")
_PAGEABLE = ("h2d-pageable", "h2d-nonblocking-pageable", "cpu", "d2h", "d2h-nonblocking-pageable")
_BY_CAUSE = {
    "cpu_before_launch": "TS201",
    "cpu_work": "TS202",
    "communication": "TS203",
    "data": "TS301",
    "copy": "TS302",
    "launch": "TS401",
}


def gpu_findings(
    gpu: GpuReport | None, idle: IdleReport | None, step_ms: float | None
) -> list[Finding]:
    """Findings with a share of at least ``MIN_SHARE`` of the captured time, most time first.

    Their gain is not known: idle time is the most that can be gained, and is the evidence.
    ``step_ms`` is the time of a step with no profiler on, where it is known.
    """
    if gpu is None or idle is None:
        return []
    busy_ms = sum(device.busy_ms_per_step for device in gpu.devices)
    whole_ms = busy_ms + idle.per_step_ms
    if whole_ms <= 0:
        return []
    limit_ms = None if step_ms is None else max(step_ms - busy_ms, 0.0)
    found = [
        *_idle(gpu, whole_ms, limit_ms),
        *_copies(gpu, whole_ms),
        *_communication(gpu, whole_ms),
    ]
    return [finding for _, finding in sorted(found, key=lambda each: -each[0])] + [*_products(gpu)]


def _idle(
    gpu: GpuReport, whole_ms: float, limit_ms: float | None
) -> Iterator[tuple[float, Finding]]:
    """``limit_ms`` is all the idle time of a step with no profiler on."""
    for detail in gpu.idle:
        code = _BY_CAUSE.get(detail.cause)
        if code is None or detail.ms_per_step < MIN_SHARE * whole_ms:
            continue
        evidence = f"idle {_of(gpu, detail.ms_per_step, whole_ms)}"
        if limit_ms is None:
            evidence += "; it may be less with no profiler on"
        elif limit_ms < detail.ms_per_step:
            evidence += f"; with no profiler on it is {duration(limit_ms)} at most"
        advice = _many_small(gpu) if code == "TS302" else None
        yield detail.ms_per_step, _finding(code, evidence, advice=advice)
        if detail.cause == "launch":
            yield from _tiny(gpu, detail.ms_per_step)


def _many_small(gpu: GpuReport) -> str | None:
    """What to do about copies of little, of which the number is what costs; None for others."""
    host = [copy for copy in gpu.copies if copy.host_memory is not None and copy.count]
    count = sum(copy.count for copy in host)
    if not count or any(copy.bytes_moved is None for copy in host):
        return None
    mean = sum(copy.bytes_moved or 0 for copy in host) / count
    if mean > _SMALL_BYTES:
        return None
    return (
        f"they are small, {mean:,.0f} bytes on average, and {count:,} in the window, so it is "
        "their number that costs: put what goes over together into one tensor first, make numbers "
        "on the GPU (torch.full, x.fill_), or keep the data there"
    )


def _tiny(gpu: GpuReport, idle_ms: float) -> Iterator[tuple[float, Finding]]:
    launches = gpu.launches
    if not launches.chains or (launches.tiny_share or 0.0) < _MANY_TINY:
        return
    chain = launches.chains[0]
    where = f" in {chain.inside}" if chain.inside else ""
    often = f"{count_of(chain.times, 'time')} {chain.kernels} in a row{where}: {chain.operators}"
    few = f"{launches.tiny_kernels:,} of {count_of(launches.kernels, 'kernel')}"
    evidence = f"{few} run for less than {launches.tiny_below_us:.0f} µs; {often}"
    # listed after the idle time that it explains
    yield idle_ms * 0.999, _finding("TS402", evidence, advice=chain.advice)


def _copies(gpu: GpuReport, whole_ms: float) -> Iterator[tuple[float, Finding]]:
    if any(site.kind in _PAGEABLE and (site.per_step or 0) >= 0.5 for site in gpu.syncs):
        return  # said of the line that waits for them
    pageable = [copy for copy in gpu.copies if copy.host_memory == "pageable"]
    alone_ms = sum(copy.alone_ms_total for copy in pageable) / max(len(gpu.steps), 1)
    if alone_ms < MIN_SHARE * whole_ms:
        return
    rates = [copy.gb_per_s for copy in pageable if copy.gb_per_s is not None]
    rate = f", at {max(rates):.1f} GB/s" if rates else ""
    yield alone_ms, _finding("TS303", f"{_of(gpu, alone_ms, whole_ms)}{rate}")


def _communication(gpu: GpuReport, whole_ms: float) -> Iterator[tuple[float, Finding]]:
    exposed_ms = sum(each.exposed_ms_total for each in gpu.communication) / max(len(gpu.steps), 1)
    if exposed_ms >= MIN_SHARE * whole_ms:
        yield exposed_ms, _finding("TS204", _of(gpu, exposed_ms, whole_ms))


def _products(gpu: GpuReport) -> Iterator[Finding]:
    """Float32 matrix products on the ordinary cores: busy time, not idle time."""
    slow = [
        (kernel.name, kernel.ms_total)
        for operator in gpu.operators
        for kernel in operator.kernels
        if _NO_TENSOR_CORES.search(kernel.name)
    ]
    slow_ms = sum(ms for _, ms in slow)
    all_ms = sum(operator.ms_total for operator in gpu.operators)
    if not slow_ms or slow_ms < 2 * MIN_SHARE * all_ms:
        return
    most = max(slow, key=lambda each: each[1])[0]
    yield _finding("TS403", f"{slow_ms / all_ms:.0%} of the kernels' time, most of it in {most}")


def _of(gpu: GpuReport, ms: float, whole_ms: float) -> str:
    span = "every captured step" if gpu.steps_counted else "the captured window"
    return f"{duration(ms)} of the {duration(whole_ms)} of {span} ({ms / whole_ms:.0%})"


def _finding(code: str, evidence: str, *, advice: str | None = None) -> Finding:
    known = IDLE_FINDINGS[code]
    return Finding(
        code=code,
        title=known.title,
        site=None,
        gain_ms_per_step=None,
        evidence=evidence,
        advice=advice or known.advice,
        snippet=known.snippet if advice is None else None,
    )
