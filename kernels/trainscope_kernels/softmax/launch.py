"""How a softmax kernel is launched on a tensor of some shape: worked out once a shape."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainscope_kernels.repeats import Again
from trainscope_kernels.softmax.plan import Plan
from trainscope_kernels.softmax.rows import MOST_LEVELS, Rows, rows_of
from trainscope_kernels.triton_start import FUSED, Start, compiled_start, starter

__all__ = ["Launch", "again_of", "launch_of", "run_on"]

INT32_END = 2**31
CONSTANTS = ("LEVELS", "UNIT", "AXIS", "WIDE", "STAGE", "ROWS", "COLUMNS", "SHARES")
"""The constexprs of both kernels, in the order of their signatures."""


class Launch(NamedTuple):
    """The grid, the integers and the constants of one or two launches.

    numbers: how many the shares of the rows leave for each other; 0 where no row is split.
    integers: the kernels' scalars, in their order. stages: constexprs and options of each launch.
    ready: what starts the compiled kernels, and their constants, by what they depend on besides;
    starting one costs a fraction of asking Triton, which looks at each argument again to find it.
    """

    grid: tuple[int, int, int]
    numbers: int
    integers: tuple[int, ...]
    stages: tuple[dict[str, Any], ...]
    ready: dict[Any, tuple[tuple[Start, tuple[Any, ...]], ...]]


@functools.lru_cache(maxsize=4096)
def launch_of(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dim: int,
    itemsize: int,
    plan_of: Callable[[Rows, int], Plan],
) -> Launch | None:
    """The launch for a tensor with these strides; None where its rows need too many levels.

    shape, strides: in elements. itemsize: bytes of a value.
    """
    rows = rows_of(shape, strides, dim)
    levels = len(rows.sizes)
    if levels > MOST_LEVELS:
        return None
    plan = plan_of(rows, itemsize)
    unit = _unit_of(rows)
    shares = -(-rows.columns // plan.columns)
    tiles = -(-rows.rows // plan.rows)
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    counts = rows.rows + plan.rows, tiles * shares, rows.columns + plan.columns
    integers = (
        rows.rows,
        rows.columns // unit,
        rows.inner,
        shares,
        rows.column_stride,
        *(stride // unit for stride in _padded(rows.strides, 0)),
        *_padded(rows.sizes, 1)[1:],
    )
    stages = ("whole",) if shares == 1 else ("publish", "finish")
    constants = {
        "LEVELS": levels,
        "UNIT": unit,
        "AXIS": 1 if rows.inner == 1 else 0,
        "WIDE": max(*counts, reach, rows.rows * rows.columns) >= INT32_END,
        "ROWS": plan.rows,
        "COLUMNS": plan.columns,
        "SHARES": 1 << (shares - 1).bit_length(),
        "num_warps": plan.warps,
        **FUSED,
    }
    numbers = 0 if shares == 1 else 2 * rows.rows * shares
    each = tuple({**constants, "STAGE": stage} for stage in stages)
    return Launch((tiles * shares, 1, 1), numbers, integers, each, {})


def run_on(device: torch.device, kernel: Any, launch: Launch, tensors: tuple[Tensor, ...]) -> None:
    """Start ``kernel`` on the current stream of ``device``, with room for the shares' numbers."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return run_on(device, kernel, launch, tensors)
    numbers = None
    if launch.numbers:
        dtype = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
        numbers = torch.empty(launch.numbers, dtype=dtype, device=tensors[0].device)
    pointers = tuple(each.data_ptr() for each in tensors)
    key = (device.index, *[each.dtype for each in tensors], *[each % 16 == 0 for each in pointers])
    ready = launch.ready.get(key)
    if ready is not None:
        to_numbers = None if numbers is None else numbers.data_ptr()
        for start, constants in ready:
            start(launch.grid[0], (*pointers, to_numbers), (*launch.integers, *constants))
        return None
    compiled = [
        kernel[launch.grid](*tensors, numbers, *launch.integers, **stage) for stage in launch.stages
    ]
    # the interpreter compiles nothing and returns None
    if None not in compiled:
        launch.ready[key] = tuple(
            (starter(each, device.index), tuple(stage[name] for name in CONSTANTS))
            for each, stage in zip(compiled, launch.stages, strict=True)
        )
    return None


def again_of(kernel: Any, launch: Launch, x: Tensor, dtype: torch.dtype | None) -> Again | None:
    """What does the launch for other tensors like x, with a result of ``dtype`` of its own.

    None where shares exchange numbers, which are made anew each time.
    """
    if launch.numbers:
        return None
    (stage,) = launch.stages
    rest = (*launch.integers, *(stage[name] for name in CONSTANTS))
    arguments = (x.dtype, dtype or x.dtype, None, *rest)
    start = compiled_start(
        kernel, x.get_device(), arguments, {"num_warps": stage["num_warps"], **FUSED}
    )
    programs = launch.grid[0]
    # torch reads fewer arguments faster
    kept: dict[str, Any] = {} if x.is_contiguous() else {"memory_format": torch.contiguous_format}
    if dtype not in (None, x.dtype):
        kept["dtype"] = dtype

    def again(x: Tensor) -> Tensor | None:
        y = torch.empty_like(x, **kept)
        at, to = x.data_ptr(), y.data_ptr()
        if (at | to) % 16:
            return None
        start(programs, (at, to, None), rest)
        return y

    return again


def _unit_of(rows: Rows) -> int:
    """The largest power of two up to 16 that divides the distances between rows.

    A kernel multiplies by it, and so knows how wide it may load: Triton itself only asks whether
    an integer divides by 16, and reads 1000 columns one by one.
    """
    if rows.inner != 1:
        return 1
    unit = 16
    for each in (rows.columns, *rows.strides):
        while each % unit:
            unit //= 2
    return unit


def _padded(values: tuple[int, ...], by: int) -> tuple[int, ...]:
    """As many values as a kernel takes, outermost first."""
    return values + (by,) * (MOST_LEVELS - len(values))
