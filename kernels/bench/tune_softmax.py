"""Times the tiles that softmax could take, as shares of a copy of the same bytes; needs a GPU.

    python kernels/bench/tune_softmax.py [--seconds 40] [--all]

For each shape the plan's own choice comes first, then the alternatives, best last. A line:
share of the copy, microseconds, the tile, registers a thread. Write what wins into
``trainscope_kernels/softmax/plan.py``.
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

from trainscope_kernels.softmax.launch import launch_of, room_on, run_on
from trainscope_kernels.softmax.plan import MOST_TOGETHER, Plan, backward_plan, forward_plan
from trainscope_kernels.softmax.rows import rows_of
from trainscope_kernels.softmax.triton_backward import softmax_backward_kernel
from trainscope_kernels.softmax.triton_forward import softmax_forward_kernel

SHAPES = [
    (4096, 131072, torch.bfloat16),
    (32768, 8192, torch.bfloat16),
    (4096, 32768, torch.bfloat16),
    (16384, 4096, torch.float32),
    (4096, 32768, torch.float32),
]
MORE_SHAPES = [
    (4096, 4096, torch.float32),
    (4096, 65536, torch.bfloat16),
    (2048, 262144, torch.bfloat16),
    (262144, 1024, torch.bfloat16),
    (1048576, 64, torch.bfloat16),
    (4096, 50257, torch.bfloat16),
]
KEPT = {"forward": ("exponentials", "input"), "backward": ("float32", "input")}
FLUSHED = 256 * 2**20
TIMINGS = 21


def main() -> None:
    """Print one table a shape until the seconds are used up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--all", action="store_true", help="the shapes of no target too")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
    print(torch.cuda.get_device_name(), torch.__version__)
    for rows, columns, dtype in SHAPES + MORE_SHAPES * options.all:
        for what in ("forward", "backward"):
            if time.monotonic() > end:
                print("out of time: more --seconds for the rest")
                return
            tensors = [torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(3)]
            if what == "forward":
                tensors.pop()
            table(what, tensors, flush, end)
            del tensors


def table(what: str, tensors: list[Tensor], flush: Tensor, end: float) -> None:
    """Time every candidate of one shape."""
    x = tensors[0]
    own = (forward_plan if what == "forward" else backward_plan)(
        rows_of(x.shape, x.stride(), 1), x.itemsize, room_on(x.device)
    )
    plans = [own, *(each for each in candidates(what, x) if each != own)]
    with ThreadPoolExecutor() as pool:
        registers = list(pool.map(lambda plan: compiled(what, tensors, plan, end), plans))
    copied = timed(copy_of(tensors), flush)
    print(f"\n{what} {x.shape[0]}x{x.shape[1]} {x.dtype}: copy {copied:.1f} us", flush=True)
    lines = []
    for plan, used in zip(plans, registers, strict=True):
        if used is None or time.monotonic() > end:
            print("out of time: more --seconds for the rest")
            break
        took = timed(lambda plan=plan: launch(what, tensors, plan), flush)
        lines.append((copied / took, took, plan, used))
    for share, took, plan, used in lines[:1] + sorted(lines[1:], key=lambda line: line[0])[-10:]:
        print(f"{share:6.3f} {took:9.1f} us  {plan}  {used}")


def candidates(what: str, x: Tensor) -> Iterator[Plan]:
    """Tiles worth a try: those whose threads hold 16 to 64 values of each operand."""
    columns = x.shape[1]
    power = 1 << (columns - 1).bit_length()
    most = 64 if what == "forward" and x.itemsize == 2 else 32
    for width in (4096, 8192, 16384, 32768):
        shares = -(-columns // width)
        if width > power or shares > MOST_TOGETHER:
            continue
        for values in (16, 32, 64):
            warps = width // (32 * values)
            if values > most or not 4 <= warps <= 32:
                continue
            if shares > 1:
                for keep in KEPT[what]:
                    yield Plan(1, width, warps, True, keep)
            else:
                yield Plan(1, width, warps, False, KEPT[what][0])
                if what == "backward":
                    yield Plan(1, width, warps, False, "input")
    for rows in (2, 4, 8, 64):
        if rows * power <= 8192:
            yield Plan(rows, power, 4, False, KEPT[what][0])
            yield Plan(rows, power, 8, False, KEPT[what][0])


def launch(what: str, tensors: list[Tensor], plan: Plan) -> None:
    """One call with this plan."""
    x = tensors[0]
    kernel: Any = softmax_forward_kernel if what == "forward" else softmax_backward_kernel
    made = launch_of(tuple(x.shape), x.stride(), 1, x.itemsize, MOST_TOGETHER, _fixed(plan))
    assert made is not None
    run_on(x.device, kernel, made, tuple(tensors))


def compiled(what: str, tensors: list[Tensor], plan: Plan, end: float) -> str | None:
    """Compile ahead, through a launch on the first rows, so that threads share the work."""
    if time.monotonic() > end:
        return None
    few = [each[:16] for each in tensors]
    first = few[0]
    made = launch_of(
        tuple(first.shape), first.stride(), 1, first.itemsize, MOST_TOGETHER, _fixed(plan)
    )
    assert made is not None
    words = torch.zeros(made.words + 1, dtype=torch.int64, device="cuda") if made.words else None
    kernel: Any = softmax_forward_kernel if what == "forward" else softmax_backward_kernel
    handle = kernel[made.grid](*few, words, *made.integers, **made.stages[0])
    return f"{handle.n_regs} registers, {handle.n_spills} spilled"


_plans: dict[Plan, Callable[..., Plan]] = {}


def _fixed(plan: Plan) -> Callable[..., Plan]:
    return _plans.setdefault(plan, lambda *_: plan)


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
