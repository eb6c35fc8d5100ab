"""Times the ways that softmax could take, as shares of a copy of the same bytes; needs a GPU.

    python kernels/bench/tune_softmax.py [--seconds 60] [--all]

For each shape the plans' own choices come first, then the alternatives, best last. A line: share
of the copy, microseconds, the way, and of Triton's kernels registers a thread. Write what wins
into ``trainscope_kernels/softmax/plan.py`` (Triton) and ``cuda_impl.py`` (clusters, on Hopper).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from trainscope_kernels.softmax import cuda_impl
from trainscope_kernels.softmax.launch import launch_of, run_on
from trainscope_kernels.softmax.plan import Plan, backward_plan, forward_plan
from trainscope_kernels.softmax.rows import rows_of
from trainscope_kernels.softmax.triton_backward import softmax_backward_kernel
from trainscope_kernels.softmax.triton_forward import softmax_forward_kernel

SHAPES = [
    (4096, 131072, torch.bfloat16),
    (4096, 32768, torch.bfloat16),
    (4096, 50257, torch.bfloat16),
    (2048, 131072, torch.float32),
    (4096, 32768, torch.float32),
    (4096, 65536, torch.bfloat16),
    (2048, 262144, torch.bfloat16),
    (8192, 16384, torch.bfloat16),
    (8192, 16384, torch.float32),
]
MORE_SHAPES = [
    (32768, 8192, torch.bfloat16),
    (16384, 4096, torch.float32),
    (4096, 4096, torch.float32),
    (262144, 1024, torch.bfloat16),
    (1048576, 64, torch.bfloat16),
    (4096, 50257, torch.float32),
]
TRITON = {
    "forward": (softmax_forward_kernel, forward_plan, 32768),
    "backward": (softmax_backward_kernel, backward_plan, 16384),
}
"""Kernel, plan, and the longest row that a program holds whole."""
STREAMS = {"forward": 2, "backward": 3}
FLUSHED = 256 * 2**20
TIMINGS = 15
KEPT = 8
"""Alternatives printed for each shape."""

Way = tuple[str, Callable[[], None]]


def main() -> None:
    """Print one table a shape until the seconds are used up."""
    parser = argparse.ArgumentParser(description="Times the ways that softmax could take")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--all", action="store_true", help="the shapes of short rows too")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
    print(torch.cuda.get_device_name(), torch.__version__)
    for rows, columns, dtype in SHAPES + MORE_SHAPES * options.all:
        for what in STREAMS:
            if time.monotonic() > end:
                print("out of time: more --seconds for the rest")
                return
            tensors = [torch.randn(rows, columns, device="cuda").to(dtype) for _ in "123"]
            table(what, tensors[3 - STREAMS[what] :], flush)
            del tensors


def table(what: str, tensors: list[Tensor], flush: Tensor) -> None:
    """Time every way of one shape."""
    x = tensors[0]
    own_triton = TRITON[what][1](rows_of(x.shape, x.stride(), 1), x.itemsize)
    own_clusters = cuda_impl.plan_of(what, x.shape[1], x.itemsize)
    triton = [own_triton, *(each for each in tiles(what, x) if each != own_triton)]
    clusters = [own_clusters, *(each for each in cluster_plans(what, x) if each != own_clusters)]
    with ThreadPoolExecutor() as pool:
        ways = list(pool.map(lambda plan: triton_way(what, tensors, plan), triton))
        ways += pool.map(lambda plan: cluster_way(what, tensors, plan), filter(None, clusters))
    copied = timed(copy_of(tensors), flush)
    print(f"\n{what} {x.shape[0]}x{x.shape[1]} {x.dtype}: copy {copied:.1f} us", flush=True)
    took = {name: timed(call, flush) for name, call in ways}
    own = (str(own_triton), f"cluster {own_clusters}")
    rest = sorted((name for name in took if not name.startswith(own)), key=took.__getitem__)
    for name in [name for name in took if name.startswith(own)] + rest[KEPT - 1 :: -1]:
        print(f"{copied / took[name]:6.3f} {took[name]:9.1f} us  {name}")


def tiles(what: str, x: Tensor) -> Iterator[Plan]:
    """Triton's tiles worth a try: those whose threads hold 16 to 64 values of each operand."""
    power = 1 << (x.shape[1] - 1).bit_length()
    most = 64 if what == "forward" and x.itemsize == 2 else 32
    if power <= TRITON[what][2]:
        for values in (16, 32, 64):
            warps = power // (32 * values)
            if values <= most and 4 <= warps <= 32:
                yield Plan(1, power, warps)
    for rows in (2, 4, 8, 64):
        if rows * power <= 8192:
            yield Plan(rows, power, 4)
            yield Plan(rows, power, 8)


def cluster_plans(what: str, x: Tensor) -> Iterator[cuda_impl.Plan]:
    """Threads and vectors of a block, with as many blocks as the row needs."""
    columns, lanes = x.shape[1], 16 // x.itemsize
    row = -(-(columns + (lanes - 1 if columns % lanes else 0)) // lanes)
    if row < 1024:
        return
    for vectors in (2, 4, 8):
        for most in (128, 256, 512):
            cluster = -(-row // (most * vectors))
            if cluster <= cuda_impl.MOST_BLOCKS:
                threads = -(-row // (cluster * vectors * 64)) * 64
                yield cuda_impl.Plan(threads, vectors, cluster)


def triton_way(what: str, tensors: list[Tensor], plan: Plan) -> Way:
    """One call with this plan, compiled through a launch on the first rows."""
    kernel: Any = TRITON[what][0]
    few = [each[:16] for each in tensors]
    made = launch_of((16, *few[0].shape[1:]), few[0].stride(), 1, few[0].itemsize, fixed(plan))
    assert made is not None
    numbers = torch.empty(made.numbers, device="cuda") if made.numbers else None
    handle = kernel[made.grid](*few, numbers, *made.integers, **made.stages[0])
    x = tensors[0]
    launch = launch_of(tuple(x.shape), x.stride(), 1, x.itemsize, fixed(plan))
    assert launch is not None
    name = f"{plan}  {handle.n_regs} registers, {handle.n_spills} spilled"
    return name, lambda: run_on(x.device, kernel, launch, tuple(tensors))


def fixed(plan: Plan) -> Callable[..., Plan]:
    """What gives this plan for any rows."""
    return lambda *_: plan


def cluster_way(what: str, tensors: list[Tensor], plan: cuda_impl.Plan) -> Way:
    """One call with this plan."""
    rows, columns = tensors[0].shape
    kernel = cuda_impl._kernel(what, tensors[0].dtype, plan, tensors[0].get_device())
    pointers = [each.data_ptr() for each in tensors]
    blocks, threads = rows * plan.cluster, (plan.threads, 1)
    return f"cluster {plan}", lambda: kernel(blocks, threads, *pointers, columns, columns)


def copy_of(tensors: list[Tensor]) -> Callable[[], None]:
    """A copy that reads and writes as many bytes as the kernel does."""
    count = tensors[0].nbytes * len(tensors) // 2
    source = torch.empty(count, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    return copy


def timed(call: Callable[[], None], flush: Tensor) -> float:
    """The median in microseconds, the L2 cache emptied before each."""
    for _ in range(3):
        call()
    starts, ends = ([torch.cuda.Event(enable_timing=True) for _ in range(TIMINGS)] for _ in "12")
    for start, end in zip(starts, ends, strict=True):
        flush.zero_()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(
        start.elapsed_time(end) * 1e3 for start, end in zip(starts, ends, strict=True)
    )


if __name__ == "__main__":
    main()
