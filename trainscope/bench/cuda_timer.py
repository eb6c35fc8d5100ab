"""Times GPU work with CUDA events, its launches queued ahead: the GPU never waits for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from statistics import median
from time import perf_counter_ns
from typing import Any, Literal

import torch

from trainscope.bench.explicit_syncs import syncs_by_name
from trainscope.bench.model import Cache
from trainscope.bench.subject import Subject
from trainscope.bench.timers import Probe, Trial

__all__ = ["LONG_CPU_NS", "CudaTimer"]

_WARM_TRIAL_NS = 200_000.0  # events tell 0.5 us apart: a quarter of a percent of this
_MOST_CALLS = 100  # more launches than the driver's queue holds would make the CPU wait
_FLUSH_BYTES = 256 << 20
_PROBE_NS = 5_000_000.0
_PROBES = 3
_RETRIES = 2
LONG_CPU_NS = 2_000_000.0
"""Beyond it a function may launch more than the driver's queue holds."""


class CudaTimer:
    """One trial: flush the L2, keep the GPU busy while the calls are queued, event, calls, event.

    cache: ``cold`` flushes the L2 before each call, so a trial has one call; ``warm`` does not.
    """

    kind: Literal["cuda-events", "perf_counter"] = "cuda-events"
    overhead_ns = 200_000.0  # a flush of 256 MiB, the cover, two events and a sync

    def __init__(
        self,
        device: torch.device,
        *,
        cache: Cache = "cold",
        cuda: Any = torch.cuda,
        clock: Callable[[], int] = perf_counter_ns,
        flush: Callable[[], object] | None = None,
    ) -> None:
        self.device = device
        self.cache: Cache = cache
        self.now_ns = clock
        self._cuda = cuda
        self._flush_with = flush

    def on_device(self) -> AbstractContextManager[object]:
        """The device as the current one."""
        return self._cuda.device(self.device)

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        self._cuda.synchronize()

    def calls_for(self, subject: Subject, call_ns: float) -> int:
        """One where each call needs a flush or a preparation, else enough for 200 us."""
        if self.cache == "cold" or subject.prepare is not None:
            return 1
        return min(max(round(_WARM_TRIAL_NS / max(call_ns, 1.0)), 1), _MOST_CALLS)

    def trial(self, subject: Subject, calls: int, probe: Probe) -> Trial:
        """Run one trial; a function that waits is not covered, since it would wait for that."""
        if probe.waits:
            return self._trial(subject, calls, 0.0)
        cover_ns = 1.5 * calls * probe.cpu_ns + 20_000
        trial = self._trial(subject, calls, cover_ns)
        for _ in range(_RETRIES):
            if trial.cpu_ns * calls <= cover_ns:
                break
            # the CPU was held up, and the GPU may have waited for it: that is not the function's
            cover_ns = 2.0 * calls * trial.cpu_ns
            trial = self._trial(subject, calls, cover_ns)
        return trial

    def _trial(self, subject: Subject, calls: int, cover_ns: float) -> Trial:
        self._make_ready(subject)
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        call = subject.call
        if cover_ns > 0:
            self._cuda._sleep(int(cover_ns * self._cycles_per_ns))
        start.record()
        began = self.now_ns()
        for _ in range(calls):
            call()
        returned = self.now_ns()
        end.record()
        end.synchronize()
        # events half a microsecond apart may say 0, to which every ratio is infinite
        took_ns = max(start.elapsed_time(end) * 1e6, 1.0)
        return Trial(took_ns / calls, (returned - began) / calls)

    def wall_ns(self, subject: Subject, calls: int) -> float:
        """The chapter's pattern: sync, clock, calls, sync, clock."""
        self._make_ready(subject)
        call = subject.call
        self._cuda.synchronize()
        began = self.now_ns()
        for _ in range(calls):
            call()
        self._cuda.synchronize()
        return (self.now_ns() - began) / calls

    def floor_ns(self) -> float:
        """Return what two events with nothing between them say, median of ten."""
        nothing = Subject("nothing", lambda: None)
        return median(self._trial(nothing, 1, 50_000.0).time_ns for _ in range(10))

    def probe(self, subject: Subject) -> Probe:
        """Call it beside a GPU that is idle, and behind one that is busy for some milliseconds."""
        bare = [self._left_behind(subject) for _ in range(_PROBES)]
        cpu_ns = min(cpu for cpu, _ in bare)
        left_behind_ns = min(left for _, left in bare)
        if cpu_ns > LONG_CPU_NS:
            # so many launches may fill the driver's queue, and then a busy GPU holds up any of them
            self._make_ready(subject)
            return Probe(syncs_by_name(subject.call, self._cuda), left_behind_ns, cpu_ns)
        cover_ns = _PROBE_NS + 4 * cpu_ns
        behind_ns = min(self._trial(subject, 1, cover_ns).cpu_ns for _ in range(_PROBES))
        return Probe(behind_ns > cover_ns / 2, left_behind_ns, cpu_ns)

    def _left_behind(self, subject: Subject) -> tuple[float, float]:
        """CPU time of a call, and how long other streams went on after the current one was done."""
        self._make_ready(subject)
        self._cuda.synchronize()
        done = self._cuda.Event(enable_timing=True)
        began = self.now_ns()
        subject.call()
        returned = self.now_ns()
        done.record()
        done.synchronize()
        here = self.now_ns()
        self._cuda.synchronize()
        return float(returned - began), float(self.now_ns() - here)

    def _make_ready(self, subject: Subject) -> None:
        if subject.prepare is not None:
            subject.prepare()
        if self.cache == "cold":
            self._flush()

    @cached_property
    def _flush(self) -> Callable[[], object]:
        """A write over several times the L2.

        A write, not a read: what it leaves dirty is written back during the timed call, in place of
        what that call itself leaves behind, so the bytes that reach memory are those it moves.
        """
        if self._flush_with is not None:
            return self._flush_with
        l2 = getattr(self._cuda.get_device_properties(self.device), "L2_cache_size", 0)
        size = max(4 * l2, _FLUSH_BYTES)
        return torch.empty(size // 4, dtype=torch.int32, device=self.device).zero_

    @cached_property
    def _cycles_per_ns(self) -> float:
        """How long the busy-wait kernel takes for a cycle; it counts cycles, not time."""
        cycles = 2_000_000
        took_ns = []
        for _ in range(3):
            start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self._cuda._sleep(cycles)
            end.record()
            end.synchronize()
            took_ns.append(start.elapsed_time(end) * 1e6)
        return cycles / median(took_ns)
