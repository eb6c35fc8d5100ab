"""The first sentence where a captured window tells what a sync costs, or what else is to blame."""

from __future__ import annotations

from trainscope.report.build_what_if import MIN_GAIN
from trainscope.report.model import IdleReport, Removal, WhatIf
from trainscope.report.model_gpu import GpuReport
from trainscope.report.wording import count_of, duration

__all__ = ["gain_sentences"]

_MUCH_IDLE = 0.1
"""Share of a step from which on idle time without a sync is worth a sentence."""
_MOSTLY = 0.5
"""Share of a step from which on idle time for one reason that no sync is comes beside their gain:
whoever takes the syncs out should know that the GPU still has little to do."""
_MANY_LOST = 0.1
"""Share of launches lost from which on waits may be among what was lost."""
_NAMED = 2
_MOST = 0.9
"""Share of what removing all gains from which on one site is named alone."""
_ALIKE = 0.4
"""How far idle time and gain may differ to be told as one; else some of the loss is no idle time: a
slow copy, or what the profiler hides."""


def gain_sentences(
    what_if: WhatIf | None, idle: IdleReport | None, gpu: GpuReport | None, step_ms: float | None
) -> list[str]:
    """What to change and what it gains; empty where the window tells nothing of it.

    Where the window is not whole that comes first.
    """
    if gpu is None or idle is None or not gpu.steps:
        return []
    doubts = [f"The capture is incomplete: {'; '.join(gpu.incomplete)}."] if gpu.incomplete else []
    return [*doubts, *_of_whole(what_if, idle, gpu, step_ms)]


def _of_whole(
    what_if: WhatIf | None, idle: IdleReport, gpu: GpuReport, step_ms: float | None
) -> list[str]:
    if what_if is not None and what_if.cannot_tell is not None:
        return [f"What removing syncs would gain cannot be told: {what_if.cannot_tell}."]
    everything = what_if.removals[0] if what_if is not None and what_if.removals else None
    if what_if is not None and what_if.kept and everything is None:
        return _where_else(
            f"No sync can be taken out: the program needs {_named(what_if.kept)}", idle, gpu
        )
    if what_if is None or everything is None or _band(everything)[0] < 1 + MIN_GAIN:
        return _no_sync(everything, idle, gpu)
    return [_gain(what_if, everything, idle, step_ms), *_idle_all_the_same(idle, gpu)]


def _gain(what_if: WhatIf, everything: Removal, idle: IdleReport, step_ms: float | None) -> str:
    alone = [each for each in what_if.removals if each.sites != "all" and len(each.sites) == 1]
    enough = [each for each in alone if each.speedup - 1 >= _MOST * (everything.speedup - 1)]
    removal = enough[0] if enough else everything
    sites = removal.sites if removal.sites != "all" else [each.sites[0] for each in alone]
    named, them = _named(sites), "it" if len(sites) == 1 else "them"
    base_ms = step_ms if step_ms is not None else removal.step_ms * removal.speedup
    gain_ms = base_ms - removal.step_ms
    idle_ms = idle.causes["sync"]
    step = f"every {duration(base_ms)} step"
    low, high = _band(removal)
    calibrated = what_if.baseline is not None and what_if.baseline.calibrated
    times = f"{removal.speedup:.2f}x" if calibrated else f"{low:.2f}x to {high:.2f}x"
    then = f"without {them} a step takes {duration(removal.step_ms)} ({times})."
    if abs(idle_ms - gain_ms) <= _ALIKE * gain_ms:
        return f"The GPU idles {duration(idle_ms)} of {step}, because of {named}; {then}"
    return f"{duration(gain_ms)} of {step} are lost by {named}; {then}"


def _idle_all_the_same(idle: IdleReport, gpu: GpuReport) -> list[str]:
    whole_ms = sum(device.busy_ms_per_step for device in gpu.devices) + idle.per_step_ms
    others = [detail for detail in gpu.idle if detail.cause != "sync"]
    worst = max(others, key=lambda detail: detail.ms_per_step, default=None)
    if worst is None or worst.ms_per_step < _MOSTLY * whole_ms:
        return []
    return [
        f"Even then the GPU idles most of the time: {duration(worst.ms_per_step)} of every "
        f"{duration(whole_ms)} captured step because {worst.words}."
    ]


def _band(removal: Removal) -> tuple[float, float]:
    return removal.band or (removal.speedup, removal.speedup)


def _named(sites: list[str]) -> str:
    if len(sites) <= _NAMED:
        return " and ".join(sites)
    return f"{', '.join(sites[:_NAMED])} and {count_of(len(sites) - _NAMED, 'more site')}"


def _no_sync(everything: Removal | None, idle: IdleReport, gpu: GpuReport) -> list[str]:
    first = "No sync is to blame"
    launches = gpu.launches
    if launches.lost > _MANY_LOST * launches.launches:
        first = "Whether a sync is to blame cannot be told: the trace lacks many of the CPU's calls"
    elif not launches.launches:
        first = "Whether a sync is to blame cannot be told: the trace has no launches"
    if everything is not None:
        most = max(1 - 1 / _band(everything)[1], 0.01)
        first += f": without any of them a step would be shorter by {most:.0%} at most"
    return _where_else(first, idle, gpu)


def _where_else(first: str, idle: IdleReport, gpu: GpuReport) -> list[str]:
    busy_ms = sum(device.busy_ms_per_step for device in gpu.devices)
    whole_ms = busy_ms + idle.per_step_ms
    if not whole_ms:
        return [f"{first}."]
    if idle.per_step_ms < _MUCH_IDLE * whole_ms or not gpu.idle:
        return [f"{first}; the GPU is busy {busy_ms / whole_ms:.0%} of the time."]
    worst = max(gpu.idle, key=lambda detail: detail.ms_per_step)
    what = worst.words
    if worst.cause == "cpu_before_launch" and gpu.first_launch_ms is not None:
        what += f", which comes {duration(gpu.first_launch_ms)} after it begins"
    return [
        f"{first}.",
        f"The GPU idles {duration(idle.per_step_ms)} of every {duration(whole_ms)} captured step; "
        f"{duration(worst.ms_per_step)} of it: {what}.",
    ]
