"""GELU in Triton: tile sizes and launches, on tensors that lie as ``run.py`` says."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from trainscope_kernels.gelu.triton_kernels import (
    backward_kernel,
    bias_backward_kernel,
    bias_forward_kernel,
    forward_kernel,
)
from trainscope_kernels.repeats import Again
from trainscope_kernels.triton_start import FUSED, Start, compiled_start, starter

__all__ = [
    "backward",
    "bias_backward",
    "bias_forward",
    "bias_forward_again",
    "forward",
    "forward_again",
]

# Elements and warps of a program, by bytes an element: one or two 16-byte vectors a thread, what
# was fastest on an H200 (kernels/bench/results/gelu_tiles_h200.txt). Shares of a copy there:
# forward 1.00, backward 1.03 (4 bytes) and 1.05 (2), bias forward 1.00; four vectors 0.90 to 0.97.
FORWARD_BLOCK = {2: (2048, 8), 4: (1024, 8), 8: (512, 8)}
BACKWARD_BLOCK = {2: (1024, 4), 4: (1024, 8), 8: (512, 8)}
BIAS_BLOCK = {2: (2048, 4), 4: (512, 4), 8: (512, 4)}
ROWS_AT_LEAST = 32  # a row of partial sums for so many rows costs under 1/48 of the traffic
PROGRAMS_ENOUGH = 2048  # several for each of the 100 to 150 SMs of the GPUs this runs on


def forward(x: torch.Tensor, y: torch.Tensor, approximate: str) -> None:
    """y = gelu(x); they may be the same tensor."""
    _run_flat(forward_kernel, FORWARD_BLOCK, approximate == "tanh", x, y)


def forward_again(x: torch.Tensor, approximate: str) -> Again:
    """What makes the GELU of tensors like x, in memory of its own."""
    n, tanh = x.numel(), approximate == "tanh"
    block, warps = FORWARD_BLOCK[x.element_size()]
    programs = -(-n // block)
    rest = (n, tanh, block)
    arguments = (x.dtype, x.dtype, *rest)
    start = compiled_start(forward_kernel, x.get_device(), arguments, {"num_warps": warps, **FUSED})

    def again(x: torch.Tensor) -> torch.Tensor | None:
        y = torch.empty_like(x)
        at, to = x.data_ptr(), y.data_ptr()
        if (at | to) % 16:
            return None
        start(programs, (at, to), rest)
        return y

    return again


def backward(grad: torch.Tensor, x: torch.Tensor, dx: torch.Tensor, approximate: str) -> None:
    """dx = grad times the derivative at x; x and dx may be the same tensor."""
    _run_flat(backward_kernel, BACKWARD_BLOCK, approximate == "tanh", grad, x, dx)


def bias_forward(x: torch.Tensor, bias: torch.Tensor, y: torch.Tensor, approximate: str) -> None:
    """y = gelu(x + bias). x, y: (..., features), contiguous."""
    rows, cols, tall, broad, warps = _tiles(x)
    programs = -(-rows // tall) * -(-cols // broad)
    arguments = (x, bias, y, rows, cols, approximate == "tanh", tall, broad)
    _launch(bias_forward_kernel, x, programs, *arguments, num_warps=warps)


def bias_forward_again(x: torch.Tensor, bias: torch.Tensor, approximate: str) -> Again:
    """What makes the GELU of x + bias for tensors like these, in memory of its own."""
    rows, cols, tall, broad, warps = _tiles(x)
    programs = -(-rows // tall) * -(-cols // broad)
    rest = (rows, cols, approximate == "tanh", tall, broad)
    arguments = (x.dtype, bias.dtype, x.dtype, *rest)
    start = compiled_start(
        bias_forward_kernel, x.get_device(), arguments, {"num_warps": warps, **FUSED}
    )

    def again(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor | None:
        y = torch.empty_like(x)
        at, by, to = x.data_ptr(), bias.data_ptr(), y.data_ptr()
        if (at | by | to) % 16:
            return None
        start(programs, (at, by, to), rest)
        return y

    return again


def bias_backward(
    grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, dx: torch.Tensor, approximate: str
) -> torch.Tensor:
    """Write x's gradient into dx; returns bias's, (features,), in float32 (float64 for float64).

    The latter comes from partial sums that are added in a fixed order.
    """
    rows, cols, tall, broad, warps = _tiles(x)
    across = -(-cols // broad)
    chunk = max(ROWS_AT_LEAST, -(-rows * across // PROGRAMS_ENOUGH))
    chunk = -(-chunk // tall) * tall
    bands = -(-rows // chunk)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    sums = torch.empty((bands, cols), dtype=wide, device=x.device)
    arguments = (grad, x, bias, dx, sums, rows, cols, chunk, approximate == "tanh", tall, broad)
    _launch(bias_backward_kernel, x, bands * across, *arguments, num_warps=warps)
    return sums.sum(0)


def _tiles(x: torch.Tensor) -> tuple[int, int, int, int, int]:
    """Rows and columns of x, and the height, breadth and warps of a program's tile."""
    cols = x.shape[-1]
    block, warps = BIAS_BLOCK[x.element_size()]
    broad = min(1 << (cols - 1).bit_length(), block // 2)
    return x.numel() // cols, cols, block // broad, broad, warps


_ready: dict[tuple[Any, ...], Start] = {}


def _run_flat(
    kernel: Any, blocks: dict[int, tuple[int, int]], tanh: bool, *tensors: torch.Tensor
) -> None:
    """Launch over the elements of equally laid out tensors.

    Triton looks at every argument at every launch, which costs more than the launch itself; what
    it compiled for tensors of this kind is kept here and launched directly.
    """
    x = tensors[0]
    n = x.numel()
    block, warps = blocks[x.element_size()]
    programs = -(-n // block)
    if not x.is_cuda:
        _launch(kernel, x, programs, *tensors, n, tanh, block, num_warps=warps)
        return
    pointers = tuple(each.data_ptr() for each in tensors)
    device = x.get_device()
    key = (id(kernel), x.dtype, tanh, device, n < 2**31)
    aligned = not any(each % 16 for each in pointers)
    start = _ready.get(key)
    if start is not None and aligned:
        with _on(x):
            start(programs, pointers, (n, tanh, block))
        return
    compiled = _launch(kernel, x, programs, *tensors, n, tanh, block, num_warps=warps)
    if aligned:
        with _on(x):
            _ready[key] = starter(compiled, device)


def _launch(kernel: Any, x: torch.Tensor, programs: int, *arguments: Any, num_warps: int) -> Any:
    with _on(x):
        return kernel[(programs,)](*arguments, num_warps=num_warps, **FUSED)


_nothing = contextlib.nullcontext()


def _on(x: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """Make x's device current; only where it is not, since that costs microseconds."""
    if x.is_cuda and x.get_device() != torch.cuda.current_device():
        return torch.cuda.device(x.device)
    return _nothing
