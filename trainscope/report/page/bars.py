"""A step's time as bars: the CPU's by phase, the GPU's by what kept it busy or idle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainscope.report.model import Report
from trainscope.report.page.names import kind_of_phase
from trainscope.report.page.timeline import SPAN_KINDS
from trainscope.report.wording import duration, range_name

__all__ = ["Bar", "Part", "bars"]

_LEAST_SHARE = 0.001
"""Of a bar: what is less cannot be seen."""


@dataclass(frozen=True)
class Part:
    """A stretch of a bar."""

    share: float
    kind: int
    words: str


@dataclass(frozen=True)
class Bar:
    """A step's time as one bar."""

    title: str
    words: str
    parts: list[Part]


def bars(report: Report) -> Iterator[Bar]:
    """Those that the report has the numbers for."""
    parts = [
        Part(
            phase.share or 0.0,
            SPAN_KINDS.index(kind_of_phase(phase.name)),
            f"{range_name(phase.name)} {duration(phase.per_step_ms.median)}, "
            f"{_share(phase.share or 0.0)}",
        )
        for phase in report.phases
        if (phase.share or 0.0) > _LEAST_SHARE
    ]
    if parts:
        rest = 1.0 - sum(part.share for part in parts)
        if rest > _LEAST_SHARE:
            parts.append(
                Part(rest, SPAN_KINDS.index("idle other"), f"outside phases {_share(rest)}")
            )
        yield Bar("CPU, by phase", "; ".join(part.words for part in parts), parts)
    gpu, idle = report.gpu, report.idle
    if gpu is None or idle is None:
        return
    busy = sum(device.busy_ms_per_step for device in gpu.devices)
    whole = busy + idle.per_step_ms
    if not whole:
        return
    parts = [Part(busy / whole, SPAN_KINDS.index("kernel"), f"GPU busy {duration(busy)}")]
    parts += [
        Part(ms / whole, SPAN_KINDS.index(f"idle {cause}"), f"idle, {cause} {duration(ms)}")
        for cause, ms in idle.causes.items()
        if ms > 0.001 * whole
    ]
    yield Bar("GPU, in the captured window", "; ".join(part.words for part in parts), parts)


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "<1%"
