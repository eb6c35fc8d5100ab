"""Softmax over the last dim, forward and backward, beside what a user would otherwise pick."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainscope_kernels.benchmarks.case import Case
from trainscope_kernels.softmax import softmax
from trainscope_kernels.softmax.cuda_impl import cuda_reason

__all__ = ["benchmarks"]

GPU_SHAPES = [
    (4096, 4096, torch.float32),
    (16384, 4096, torch.float32),
    (32768, 8192, torch.bfloat16),
    (4096, 32768, torch.bfloat16),
    (4096, 131072, torch.bfloat16),
]
CPU_SHAPES = [(256, 1024, torch.float32)]
STREAMS = {False: 2, True: 3}
"""Forward: x read, y written. Backward: y and dy read, dx written."""
SHORTEST_CLUSTERED = 16384
"""Below, one thread block holds a row, and Triton's kernel is at the copy's speed."""
LONGEST_SIMPLE = 8192
"""With 4 warps a longer row spills out of the registers, by kilobytes a thread."""


def benchmarks() -> list[Case]:
    """Forward and backward of every shape, in sizes that suit torch's default device."""
    on_gpu = torch.get_default_device().type == "cuda"
    shapes = GPU_SHAPES if on_gpu else CPU_SHAPES
    return [_case(*shape, backward, on_gpu) for backward in (False, True) for shape in shapes]


def _case(rows: int, columns: int, dtype: torch.dtype, backward: bool, on_gpu: bool) -> Case:
    impls: dict[str, Callable[..., Any]] = {
        "torch": _torch_softmax,
        "manual": manual_softmax,
        "reference": functools.partial(softmax, impl="reference"),
    }
    if on_gpu:
        impls["torch.compile"] = torch.compile(_torch_softmax, dynamic=False)
        impls["triton"] = functools.partial(softmax, impl="triton")
        if columns >= SHORTEST_CLUSTERED and cuda_reason(torch.device("cuda", 0)) is None:
            impls["cuda"] = functools.partial(softmax, impl="cuda")
        if not backward and columns <= LONGEST_SIMPLE:
            from trainscope_kernels.benchmarks.simple_softmax import simple_softmax

            impls["one row a program"] = simple_softmax
    kind = str(dtype).removeprefix("torch.")
    return Case(
        name=f"softmax {'backward' if backward else 'forward'} {rows}x{columns} {kind}",
        impls=impls,
        make_inputs=functools.partial(_inputs, rows, columns, dtype),
        reference="torch",
        bytes_moved=STREAMS[backward] * rows * columns * dtype.itemsize,
        flops=None,
        backward=backward,
    )


def _inputs(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor]:
    return (torch.randn(rows, columns, dtype=dtype),)


def _torch_softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def manual_softmax(x: Tensor) -> Tensor:
    """One torch operation after the other, in x's dtype: each is a kernel and a trip to memory."""
    shifted = x - x.max(dim=-1, keepdim=True).values
    grown = torch.exp(shifted)
    return grown / grown.sum(dim=-1, keepdim=True)
