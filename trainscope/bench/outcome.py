"""From what was taken of a function to its measurement: spread, roofline and flags together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from trainscope.bench.ceilings import ceiling, roofline
from trainscope.bench.cuda_timer import LONG_CPU_NS
from trainscope.bench.dispatch_cost import ops_ns
from trainscope.bench.environment import state_while
from trainscope.bench.flags import Seen, flags_of, leaves_work_behind
from trainscope.bench.model import Environment, GpuState, Measurement, WarmUp
from trainscope.bench.spread import spread
from trainscope.bench.subject import Subject, calling
from trainscope.bench.timers import Timer
from trainscope.bench.trials import Taken

__all__ = ["Work", "by_the_host", "measured", "state_of", "times_of", "work_of"]

_QUEUED = 8


@dataclass(frozen=True)
class Work:
    """What a call has to do at least, and how fast this device does such work."""

    bytes_moved: int | None = None
    flops: int | None = None
    copy_bytes_s: float | None = None
    matmul_flop_s: float | None = None


def work_of(
    bytes_moved: int | None, flops: int | None, inputs: Sequence[Any], device: torch.device
) -> Work:
    """Look the ceilings up that this work needs; a matmul's is that of the first float input.

    Of dtypes that torch.mm does not multiply as fast as the device can, no ceiling is known.
    """
    copy_bytes_s = None if bytes_moved is None else ceiling("copy", device)
    matmul_flop_s = None
    if flops is not None:
        dtypes = [each.dtype for each in pytree.tree_leaves(tuple(inputs)) if _floating(each)]
        dtype = dtypes[0] if dtypes else torch.float32
        matmul_flop_s = ceiling("matmul", device, dtype) if dtype.itemsize > 1 else None
    return Work(bytes_moved, flops, copy_bytes_s, matmul_flop_s)


def by_the_host(taken: Taken) -> bool:
    """Whether events miss part of the work, so that only the host's clock tells its time."""
    return bool(taken.wall_ns) and leaves_work_behind(
        taken.probe.left_behind_ns / 1000, median(taken.wall_ns) / 1000
    )


def times_of(taken: Taken) -> list[float]:
    """The trials to go by."""
    return taken.wall_ns if by_the_host(taken) else taken.times_ns


def measured(
    taken: Taken,
    timer: Timer,
    work: Work,
    environment: Environment,
    *,
    floor_ns: float,
    state: GpuState | None,
    **more: Any,
) -> Measurement:
    """Put the measurement together; ``more`` are further fields of it.

    Raises:
        CallError: the function, which is called a few times more, raised.
    """
    with calling(taken.subject.name):
        ops_us = None if timer.kind == "cuda-events" else ops_ns(taken.subject, timer) / 1000
        memory_peak = _memory_peak(taken.subject, timer)
    on_gpu = timer.kind == "cuda-events"
    times_ns = times_of(taken)
    time = spread(times_ns)
    cpu_us = _cpu_ns(taken) / 1000
    share = roofline(
        time.median_us,
        bytes_moved=work.bytes_moved,
        flops=work.flops,
        copy_bytes_s=work.copy_bytes_s,
        matmul_flop_s=work.matmul_flop_s,
    )
    seen = Seen(
        on_gpu=on_gpu,
        time=time,
        cpu_us=cpu_us,
        waits=taken.probe.waits,
        left_behind_us=taken.probe.left_behind_ns / 1000,
        wall_us=median(taken.wall_ns) / 1000 if taken.wall_ns else time.median_us,
        floor_us=floor_ns / 1000,
        settled=taken.warmed.settled,
        ops_us=ops_us,
        roofline=share,
        bytes_moved=work.bytes_moved,
        last_level_bytes=_last_level_bytes(timer),
        state=state,
    )
    flags = (*more.pop("flags", ()), *flags_of(seen))
    kind: Literal["cuda-events", "perf_counter"] = timer.kind
    return Measurement(
        name=taken.subject.name,
        timer="perf_counter" if by_the_host(taken) else kind,
        cache=timer.cache,
        calls_per_trial=taken.calls,
        time=time,
        wall=spread(taken.wall_ns) if taken.wall_ns else None,
        cpu_us=cpu_us,
        memory_peak_bytes=memory_peak,
        warm_up=WarmUp(
            calls=taken.warmed.calls,
            spent_ms=taken.warmed.spent_ns / 1e6,
            settled=taken.warmed.settled,
        ),
        roofline=share,
        state=state,
        flags=flags,
        environment=environment,
        **more,
    )


def _cpu_ns(taken: Taken) -> float:
    """CPU time of a call; the probe's where so many launches filled the queue in the trials."""
    of_trials, bare = median(taken.cpu_ns), taken.probe.cpu_ns
    held_up = taken.wall_ns and bare > LONG_CPU_NS and not taken.probe.waits
    return min(of_trials, bare) if held_up else of_trials


def state_of(subject: Subject, timer: Timer) -> GpuState | None:
    """The GPU's clocks while it runs the function."""
    if timer.device.type != "cuda":
        return None

    def busy() -> None:
        for _ in range(_QUEUED):
            if subject.prepare is not None:
                subject.prepare()
            subject.call()
        timer.synchronize()

    with timer.on_device(), calling(subject.name):
        return state_while(timer.device, busy)


def _memory_peak(subject: Subject, timer: Timer) -> int | None:
    if timer.device.type != "cuda":
        return None
    with timer.on_device():
        if subject.prepare is not None:
            subject.prepare()
        timer.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        subject.call()
        timer.synchronize()
        return torch.cuda.max_memory_allocated() - before


def _last_level_bytes(timer: Timer) -> int | None:
    """Of the cache that a warm call may be served from; on the CPU nobody says, so any size."""
    if timer.cache == "cold":
        return None
    if timer.device.type != "cuda":
        return 1 << 30
    return getattr(torch.cuda.get_device_properties(timer.device), "L2_cache_size", None)


def _floating(value: Any) -> bool:
    return torch.is_tensor(value) and value.is_floating_point()
