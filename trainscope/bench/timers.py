"""What a timer does, and the one for work that runs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import get_clock_info, perf_counter_ns
from typing import Literal, Protocol

import torch

from trainscope.bench.model import Cache
from trainscope.bench.subject import Subject

__all__ = ["CpuTimer", "Probe", "Timer", "Trial"]

CPU_TRIAL_NS = 100_000.0
"""A trial lasts at least this long, a thousand times what the clock can tell apart."""


@dataclass(frozen=True)
class Trial:
    """The time of one call, mean over the calls of a trial."""

    time_ns: float
    """By the device's own timer."""
    cpu_ns: float
    """Until the call returned."""


@dataclass(frozen=True)
class Probe:
    """What a function does that a timer must know of."""

    waits: bool
    """The call returns only when the GPU has done what was queued before it."""
    left_behind_ns: float
    """What still ran on other streams when the current stream was done."""
    cpu_ns: float
    """Until one call returned, nothing queued before it."""


class Timer(Protocol):
    """Times calls on one device. Times are nanoseconds."""

    kind: Literal["cuda-events", "perf_counter"]
    cache: Cache
    device: torch.device
    overhead_ns: float
    """What a trial costs beside its calls."""

    def on_device(self) -> AbstractContextManager[object]:
        """The context in which everything is called."""
        ...

    def now_ns(self) -> int:
        """The host's clock."""
        ...

    def synchronize(self) -> None:
        """Return when the device has nothing left to do."""
        ...

    def calls_for(self, subject: Subject, call_ns: float) -> int:
        """Return how many calls make a trial."""
        ...

    def probe(self, subject: Subject) -> Probe:
        """Find out what the function does with streams and syncs."""
        ...

    def trial(self, subject: Subject, calls: int, probe: Probe) -> Trial:
        """Run one trial."""
        ...

    def wall_ns(self, subject: Subject, calls: int) -> float:
        """Time one call by the host's clock, from an idle device to an idle device."""
        ...

    def floor_ns(self) -> float:
        """Return what the timer says of a call that does nothing."""
        ...


class CpuTimer:
    """Times by the host's clock alone; calls are repeated until the clock can tell them apart."""

    kind: Literal["cuda-events", "perf_counter"] = "perf_counter"
    cache: Cache = "warm"
    overhead_ns = 0.0

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.now_ns = clock
        self.device = torch.device("cpu")

    def on_device(self) -> AbstractContextManager[object]:
        """Nothing to switch."""
        return nullcontext()

    def synchronize(self) -> None:
        """Do nothing: a call returns when its work is done."""

    def calls_for(self, subject: Subject, call_ns: float) -> int:
        """Enough calls for a trial of 100 us; one where each has to be prepared."""
        if subject.prepare is not None:
            return 1
        return min(max(round(CPU_TRIAL_NS / max(call_ns, 1.0)), 1), 10_000)

    def probe(self, subject: Subject) -> Probe:
        """Nothing to find: there is no queue and no stream."""
        return Probe(waits=False, left_behind_ns=0.0, cpu_ns=self.wall_ns(subject, 1))

    def trial(self, subject: Subject, calls: int, probe: Probe) -> Trial:
        """Run the calls of a trial one after another."""
        one_ns = self.wall_ns(subject, calls)
        return Trial(one_ns, one_ns)

    def wall_ns(self, subject: Subject, calls: int) -> float:
        """Time one call, mean over ``calls``."""
        if subject.prepare is not None:
            subject.prepare()
        call = subject.call
        began = self.now_ns()
        for _ in range(calls):
            call()
        return (self.now_ns() - began) / calls

    def floor_ns(self) -> float:
        """Return the resolution of the clock."""
        return get_clock_info("perf_counter").resolution * 1e9
