"""CPU time of logging four values: ours, the launch alone, and ``wandb.log`` with four ``.item()``.

    python tests/bench/log_cost.py [--calls N] [--out FOLDER]

The calls are timed one by one and in turn (A B C A B C), once with the GPU idle before each and
once with about a millisecond of work queued, which is what a training loop looks like. On a
machine without a GPU the tensors are CPU tensors, and the result says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

import torch
from outcome import write_result

from trainscope.metrics.logger import MetricsLogger
from trainscope.metrics.sinks import Jsonl, SinkContext
from trainscope.metrics.worker import Worker

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
TARGET_US = 15.0
LOADED_S = 1.2
"""By then the worker has loaded the kernel that a log call launches."""
ONE_DTYPE = "log, four tensors of one dtype"

Call = Callable[[int], object]


@contextmanager
def contenders(folder: Path) -> Iterator[dict[str, Call]]:
    """Each takes the number of the call."""
    floats = {f"m{i}": torch.full((), float(i), device=DEVICE) for i in range(4)}
    mixed = {
        "m0": floats["m0"],
        "m1": floats["m1"].bfloat16(),
        "m2": floats["m2"].long(),
        "m3": floats["m3"].double(),
    }
    sources = list(floats.values())
    rows = list(torch.zeros(4, device=DEVICE).unbind())
    worker = Worker()
    logger = MetricsLogger(
        [Jsonl()], context=SinkContext(folder, folder, 0, 1, "log_cost"), worker=worker
    )
    worker.start()
    logger.log(-1, floats)
    time.sleep(LOADED_S)
    calls: dict[str, Call] = {
        ONE_DTYPE: lambda step: logger.log(step, floats),
        "log, four tensors of four dtypes": lambda step: logger.log(step, mixed),
        "log, four numbers": lambda step: logger.log(step, dict.fromkeys(floats, 0.5)),
        "torch's own fused copy of the four": lambda step: torch._foreach_copy_(rows, sources),
        "four .item()": lambda step: [tensor.item() for tensor in sources],
    }
    run = None
    if importlib.util.find_spec("wandb") is not None:
        import wandb

        run = wandb.init(project="log-cost", mode="offline", dir=str(folder))
        calls["wandb.log with four .item()"] = lambda step: run.log(
            {name: tensor.item() for name, tensor in floats.items()}
        )
    yield calls
    logger.close()
    worker.close()
    dropped = logger.state().dropped
    assert dropped == 0, f"{dropped} calls were dropped: their times are not those of a log"
    if run is not None:
        run.finish()


def measure(calls: dict[str, Call], count: int, before: Callable[[], None]) -> dict[str, object]:
    """Median, p90 and slowest of each contender, in µs, over ``count`` calls in turn."""
    times_us: dict[str, list[float]] = {name: [] for name in calls}
    for step in range(-20, count):
        for name, call in calls.items():
            before()
            began_ns = perf_counter_ns()
            call(step)
            took_us = (perf_counter_ns() - began_ns) / 1e3
            if step >= 0:  # the first twenty warm up
                times_us[name].append(took_us)
    return {
        name: {
            "median_us": round(statistics.median(found), 2),
            "p90_us": round(statistics.quantiles(found, n=10)[-1], 2),
            "max_us": round(max(found), 2),
        }
        for name, found in times_us.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ["WANDB_SILENT"] = "true"
    busy = torch.zeros(3072, 3072, device=DEVICE) if CUDA else None

    def idle_gpu() -> None:
        if CUDA:
            torch.cuda.synchronize()

    def busy_gpu() -> None:
        idle_gpu()
        if busy is not None:
            torch.mm(busy, busy)

    with tempfile.TemporaryDirectory() as folder, contenders(Path(folder)) as calls:
        idle = measure(calls, options.calls, idle_gpu)
        queued = measure(calls, options.calls, busy_gpu) if CUDA else None
    median_us = idle[ONE_DTYPE]["median_us"]  # type: ignore[index]
    path = write_result(
        "log_cost",
        {
            "tensors_on": DEVICE.type,
            "note": None if CUDA else "no GPU here: CPU tensors, so no launch and no wait is in it",
            "calls": options.calls,
            "target_us": TARGET_US,
            "target_met": median_us <= TARGET_US if CUDA else None,
            "gpu_idle_before_each": idle,
            "gpu_busy_1ms_before_each": queued,
        },
        options.out,
    )
    print(path.read_text())


if __name__ == "__main__":
    main()
