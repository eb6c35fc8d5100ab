"""Softmax of long rows in CUDA C++ for Hopper: a cluster of thread blocks holds a row.

Compiled at first use by NVRTC, once for each number of columns that needs other threads. A row
of any length up to ``MOST_BYTES`` costs the two streams (forward) or three (backward) that a
short one does.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from trainscope_kernels.cuda_driver import Kernel, Module
from trainscope_kernels.nvrtc import compiled, reason_on
from trainscope_kernels.repeats import Again
from trainscope_kernels.softmax.rows import rows_of

__all__ = ["Plan", "call_reason", "cuda_reason", "plan_of", "softmax_backward", "softmax_forward"]
__all__ += ["softmax_forward_again"]

HERE = Path(__file__).parent
HEADERS = (HERE.parent / "vectors.cuh",)
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
CLUSTERS_SINCE = (9, 0)
"""Hopper: the first GPUs whose thread blocks form clusters."""

VECTOR_BYTES = 16
# Of 2, 4 and 8 vectors and 128 to 1024 threads these were fastest on an H200 at 32,768 to 262,144
# columns (kernels/bench/results/softmax_clusters_h200.txt). The backward holds two operands.
VECTORS = {"forward": (8,), "backward": (4, 8)}
"""16-byte vectors of each operand that a thread holds: the first of these that suffices."""
MOST_THREADS = 512
MOST_BLOCKS = 8
"""CUDA forms clusters of so many blocks on every GPU that has clusters."""
MOST_BYTES = MOST_BLOCKS * MOST_THREADS * 8 * VECTOR_BYTES
"""Of a row: 262,144 half or 131,072 float32 columns, one vector less where rows are not aligned."""


class Plan(NamedTuple):
    """Threads of a block, vectors of an operand that each holds, and blocks of a row."""

    threads: int
    vectors: int
    cluster: int


@functools.cache
def cuda_reason(device: torch.device) -> str | None:
    """Why these kernels cannot run on this device; None where they can."""
    return reason_on(device, CLUSTERS_SINCE, " (clusters)")


@functools.lru_cache(maxsize=4096)
def plan_of(name: str, columns: int, itemsize: int) -> Plan | None:
    """How "forward" or "backward" shares out a row of so many columns; None where it is too long.

    Threads are as few as the columns allow, in steps of 64, so that none of them idles.
    """
    lanes = VECTOR_BYTES // itemsize
    # rows that are no multiple of 16 bytes start anywhere in their first vector
    row = -(-(columns + (lanes - 1 if columns % lanes else 0)) // lanes)
    for vectors in VECTORS[name]:
        cluster = max(-(-row // (MOST_THREADS * vectors)), 1)
        if cluster <= MOST_BLOCKS:
            threads = -(-row // (cluster * vectors))
            return Plan(max(-(-threads // 64) * 64, 64), vectors, cluster)
    return None


def call_reason(columns: int, last: bool, dtype: torch.dtype, result: torch.dtype) -> str | None:
    """Why a softmax of this kind is none of theirs; None where it is.

    last: whether the columns are the last dim. result: the dtype of what is returned.
    """
    if dtype not in KINDS:
        return f"it takes float32, bfloat16 and float16, x has {dtype}"
    if result != dtype:
        return f"its result has x's dtype, {dtype}, and {result} was asked for"
    if not last:
        return "it takes the last dim only: transpose x first"
    if plan_of("forward", columns, dtype.itemsize) is None:
        return f"a row of {columns} columns is longer than {MOST_BYTES} bytes"
    return None


def softmax_forward(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """Softmax of ``x`` along its last dim, contiguous; rows that do not fit are copied first."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel() == 0:
        return y
    kernel, launch = _ready("forward", x)
    if launch is None:
        return softmax_forward(torch.empty_like(y).copy_(x), dim, dtype)
    kernel(launch.blocks, launch.threads, x.data_ptr(), y.data_ptr(), *launch.lengths)
    return y


def softmax_forward_again(x: Tensor, dim: int, dtype: torch.dtype | None) -> Again | None:
    """What does ``softmax_forward`` of other tensors like x; None where each is looked at."""
    if x.numel() == 0:
        return None
    kernel, launch = _ready("forward", x)
    if launch is None:
        return None
    blocks, threads, lengths = launch

    def again(x: Tensor) -> Tensor | None:
        at = x.data_ptr()
        if at % VECTOR_BYTES:
            return None
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        kernel(blocks, threads, at, y.data_ptr(), *lengths)
        return y

    return again


def softmax_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """The gradient of the softmax along the last dim whose result was ``y``; copies as above."""
    dx = torch.empty_like(y, memory_format=torch.contiguous_format)
    if y.numel() == 0:
        return dx
    if not y.is_contiguous() or y.data_ptr() % VECTOR_BYTES:
        y = torch.empty_like(dx).copy_(y)
    kernel, launch = _ready("backward", dy)
    if launch is None:
        return softmax_backward(torch.empty_like(y).copy_(dy), y, dim, dtype)
    pointers = dy.data_ptr(), y.data_ptr(), dx.data_ptr()
    kernel(launch.blocks, launch.threads, *pointers, *launch.lengths)
    return dx


class Launch(NamedTuple):
    """What a kernel is started with. lengths: a row's columns, and the input's row stride."""

    blocks: int
    threads: tuple[int, int]
    lengths: tuple[int, int]


def _ready(name: str, x: Tensor) -> tuple[Kernel, Launch | None]:
    """The kernel, and its launch unless x's rows are shifted against a contiguous result's."""
    shape = x.shape
    plan = plan_of(name, shape[-1] if shape else 1, x.itemsize)
    assert plan is not None  # call_reason was asked
    launch = None
    if x.data_ptr() % VECTOR_BYTES == 0:
        launch = _launch(shape, x.stride(), x.itemsize, plan)
    return _kernel(name, x.dtype, plan, x.get_device()), launch


@functools.lru_cache(maxsize=4096)
def _launch(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, plan: Plan
) -> Launch | None:
    rows = rows_of(shape, strides, len(shape) - 1)
    stride = rows.strides[0] if rows.rows > 1 else rows.columns
    shifted = (stride - rows.columns) * itemsize % VECTOR_BYTES
    if len(rows.sizes) > 1 or rows.column_stride != 1 or shifted:
        return None
    return Launch(rows.rows * plan.cluster, (plan.threads, 1), (rows.columns, stride))


@functools.cache
def _kernel(name: str, dtype: torch.dtype, plan: Plan, device: int) -> Kernel:
    return _module(dtype, plan, device).kernel(name)


@functools.cache
def _module(dtype: torch.dtype, plan: Plan, device: int) -> Module:
    macros = {
        "SCALAR": KINDS[dtype],
        "STREAM": 0,
        "THREADS": plan.threads,
        "VECTORS": plan.vectors,
        "CLUSTER": plan.cluster,
    }
    capability = torch.cuda.get_device_capability(device)
    return Module(compiled(HERE / "softmax.cu", capability, macros, HEADERS), device)
