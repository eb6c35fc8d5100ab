"""A GPU whose time is exact: streams that run in order, and a CPU clock that only calls move.

It stands in for ``torch.cuda`` and for the clock of a ``CudaTimer``; all times are nanoseconds.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from trainscope.bench.cuda_timer import CudaTimer
from trainscope.bench.model import Cache
from trainscope.bench.subject import Subject

FLUSH_NS = 60_000


class FakeGpu:
    def __init__(self) -> None:
        self.now = 0
        self.done = {0: 0}
        self.flushes = 0
        self.slept: list[int] = []
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing
                self.at = -1

            def record(self) -> None:
                self.at = max(gpu.now, gpu.done[0])

            def synchronize(self) -> None:
                gpu.now = max(gpu.now, self.at)

            def elapsed_time(self, end: Any) -> float:
                return (end.at - self.at) / 1e6

        class Stream:
            def synchronize(self) -> None:
                gpu.synchronize()

        self.Event = Event
        self.Stream = Stream
        self.sync_debug_mode = 0

    # what a timer asks of torch.cuda

    def synchronize(self) -> None:
        self.now = max(self.now, *self.done.values())

    def device(self, device: torch.device) -> AbstractContextManager[None]:
        return nullcontext()

    def _sleep(self, cycles: int) -> None:
        """One cycle a nanosecond."""
        self.slept.append(cycles)
        self.launch(cycles, cpu_ns=0)

    def get_sync_debug_mode(self) -> int:
        return self.sync_debug_mode

    def set_sync_debug_mode(self, mode: int | str) -> None:
        self.sync_debug_mode = {"default": 0, "warn": 1}.get(str(mode), 0)

    # what the functions under test do

    def launch(self, gpu_ns: int, *, cpu_ns: int = 5_000, stream: int = 0) -> None:
        self.now += cpu_ns
        self.done[stream] = max(self.now, self.done.get(stream, 0)) + gpu_ns

    def join(self, stream: int) -> None:
        """The current stream waits for another."""
        self.done[0] = max(self.done[0], self.done[stream])

    def clock(self) -> int:
        return self.now

    def flush(self) -> None:
        self.flushes += 1
        self.launch(FLUSH_NS)

    def timer(self, cache: Cache = "cold") -> CudaTimer:
        return CudaTimer(
            torch.device("cpu"), cache=cache, cuda=self, clock=self.clock, flush=self.flush
        )


def launches(gpu: FakeGpu, count: int, gpu_ns: int, cpu_ns: int = 5_000) -> Subject:
    def call() -> None:
        for _ in range(count):
            gpu.launch(gpu_ns, cpu_ns=cpu_ns)

    return Subject(f"{count} x {gpu_ns} ns", call)
