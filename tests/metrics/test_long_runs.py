"""Bad sinks and many steps: the loop keeps its pace and the memory its size."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence

import pytest
import torch
from metrics_rig import Rig, until

from trainscope.metrics.records import MetricRecord, SinkContext


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_memory_is_flat_over_many_steps() -> None:
    """A sink that hangs as well: its queue is bounded, what it misses is counted."""
    value = torch.zeros(())
    hang = threading.Event()

    class Hanging:
        name = "hanging"

        def open(self, run: SinkContext) -> None:
            hang.wait(120)

        def write(self, records: Sequence[MetricRecord]) -> None: ...

        def close(self) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with Rig(Hanging()) as rig:
            rig.kept.write = lambda records: None  # type: ignore[method-assign]
            steps = 1_000_000
            sizes: list[tuple[int, int]] = []
            for step in range(steps):
                if step % 16:
                    rig.logger.log(step, {"lr": 0.5})
                else:
                    rig.logger.log(step, {"lr": 0.5, "x": value})
                if step % 10_000 == 0 and not rig.logger.state().sinks[1].dropped:
                    # a loop that does nothing else leaves the worker little time to fill queues
                    rig.logger.flush(timeout_s=0.2)
                if step in (steps // 2, steps - 1):
                    rig.logger.flush(timeout_s=0.2)
                    until(lambda: rig.logger._outlets[0].idle)
                    gc.collect()
                    sizes.append((sys.getallocatedblocks(), _resident_bytes()))
            state = rig.logger.state()
            hang.set()
            rig.close()
    assert state.logged == steps
    assert state.sinks[1].dropped > 0
    assert rig.logger.state().written + state.dropped == steps
    (first_blocks, first_bytes), (last_blocks, last_bytes) = sizes
    assert last_blocks - first_blocks < steps // 3  # what is on its way differs by thousands
    assert last_bytes - first_bytes < 8 * 2**20


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_loop_is_not_held_up_by_a_sink() -> None:
    class Slow:
        name = "slow"

        def open(self, run: SinkContext) -> None:
            time.sleep(0.5)

        def write(self, records: Sequence[MetricRecord]) -> None:
            time.sleep(0.5)

        def close(self) -> None: ...

    with Rig(Slow()) as rig:
        began_s = time.perf_counter()
        for step in range(1000):
            rig.logger.log(step, {"x": 1.0})
        took_s = time.perf_counter() - began_s
        until(lambda: len(rig.kept.records) == 1000, timeout_s=0.45 + 5)
        rig.close()
        states = {sink.name: (sink.written, sink.dropped) for sink in rig.logger.state().sinks}
    assert took_s < 0.45
    assert states == {"kept": (1000, 0), "slow": (1000, 0)}
