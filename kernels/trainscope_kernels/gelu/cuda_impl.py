"""GELU in CUDA C++: compiled at first use by NVRTC, launched on torch's current stream.

Tensors lie as ``run.py`` says.
"""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from trainscope_kernels.cuda_driver import Kernel, Module
from trainscope_kernels.errors import ImplUnavailableError
from trainscope_kernels.impls import OLDEST_CAPABILITY
from trainscope_kernels.nvrtc import compiled, reason_on
from trainscope_kernels.repeats import Again

__all__ = [
    "backward",
    "bias_backward",
    "bias_forward",
    "bias_forward_again",
    "forward",
    "forward_again",
    "require",
]

HERE = Path(__file__).parent
HEADERS = (HERE / "gelu.cuh", HERE.parent / "vectors.cuh")
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
VECTOR_BYTES = 16

# Of 1 to 4 vectors, 128 to 512 threads and both kinds of store these were fastest on an H200
# (kernels/bench/results/gelu_tiles_h200.txt): shares of a copy 0.99 and 1.03 (float32, forward and
# backward), 1.01 and 1.05 (bfloat16); stores marked as streaming lost 3 to 10 %.
THREADS = 128
VECTORS = 1  # 16-byte vectors of a thread, all in flight before its first store
STREAM = 0
BIAS_THREADS = 256
ROWS_AT_LEAST = 32  # a row of partial sums for so many rows costs under 1/48 of the traffic
ROWS_UNROLLED = 4
THREADS_ENOUGH = 1 << 18  # what fills the 100 to 150 SMs of the GPUs this runs on


@functools.cache
def require(device: torch.device) -> None:
    """Raise ImplUnavailableError, with the reason, where these kernels cannot run."""
    reason = reason_on(device, OLDEST_CAPABILITY)
    if reason is not None:
        raise ImplUnavailableError(f"impl='cuda' cannot run: {reason}; or pass impl='auto'")


def forward(x: torch.Tensor, y: torch.Tensor, approximate: str) -> None:
    """y = gelu(x); they may be the same tensor."""
    at, to, n = x.data_ptr(), y.data_ptr(), y.numel()
    name = "forward" if (at | to) % VECTOR_BYTES == 0 else "forward_any"
    kernel, share = _flat(name, x.dtype, approximate, x.get_device())
    kernel(-(-n // share), (THREADS, 1), at, to, n)


def forward_again(x: torch.Tensor, approximate: str) -> Again:
    """What makes the GELU of tensors like x, in memory of its own."""
    kernel, share = _flat("forward", x.dtype, approximate, x.get_device())
    n = x.numel()
    blocks = -(-n // share)

    def again(x: torch.Tensor) -> torch.Tensor | None:
        y = torch.empty_like(x)
        at, to = x.data_ptr(), y.data_ptr()
        if (at | to) % VECTOR_BYTES:
            return None
        kernel(blocks, (THREADS, 1), at, to, n)
        return y

    return again


def backward(grad: torch.Tensor, x: torch.Tensor, dx: torch.Tensor, approximate: str) -> None:
    """dx = grad times the derivative at x; x and dx may be the same tensor."""
    of, at, to, n = grad.data_ptr(), x.data_ptr(), dx.data_ptr(), dx.numel()
    name = "backward" if (of | at | to) % VECTOR_BYTES == 0 else "backward_any"
    kernel, share = _flat(name, x.dtype, approximate, x.get_device())
    kernel(-(-n // share), (THREADS, 1), of, at, to, n)


def bias_forward(x: torch.Tensor, bias: torch.Tensor, y: torch.Tensor, approximate: str) -> None:
    """y = gelu(x + bias). x, y: (..., features), contiguous."""
    _launch_biased("bias_forward", (x,), bias, y, approximate)


def bias_forward_again(x: torch.Tensor, bias: torch.Tensor, approximate: str) -> Again:
    """What makes the GELU of x + bias for tensors like these, in memory of its own."""

    def again(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        bias_forward(x, bias, y, approximate)
        return y

    return again


def bias_backward(
    grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, dx: torch.Tensor, approximate: str
) -> torch.Tensor:
    """Write x's gradient into dx; returns bias's, (features,), in float32.

    The latter comes from partial sums that are added in a fixed order.
    """
    return _launch_biased("bias_backward", (grad, x), bias, dx, approximate).sum(0)


def _launch_biased(
    name: str,
    inputs: tuple[torch.Tensor, ...],
    bias: torch.Tensor,
    out: torch.Tensor,
    approximate: str,
) -> torch.Tensor:
    """Run a kernel of bias_gelu.cu; returns its partial sums, empty for the forward one."""
    x = inputs[-1]
    cols = x.shape[-1]
    rows = x.numel() // cols
    lanes = VECTOR_BYTES // x.element_size()
    read, written = [each.data_ptr() for each in inputs], out.data_ptr()
    if cols % lanes or any(each % VECTOR_BYTES for each in (*read, written)):
        name, lanes = f"{name}_any", 1
    # narrow rows share a block, so that its threads are not idle
    beside = min(BIAS_THREADS, 1 << (-(-cols // lanes) - 1).bit_length())
    above = BIAS_THREADS // beside
    across = -(-cols // (beside * lanes))
    backward = name.startswith("bias_backward")
    rows_a_thread = max(
        ROWS_AT_LEAST if backward else ROWS_UNROLLED,
        -(-rows * across * beside // THREADS_ENOUGH),
    )
    chunk = rows_a_thread * above
    bands = -(-rows // chunk)
    sums = torch.empty(
        (bands * above if backward else 0, cols), dtype=torch.float32, device=x.device
    )
    kernel = _biased(name, x.dtype, bias.dtype, approximate, x.get_device())
    arguments = [*read, bias.data_ptr(), written, *([sums.data_ptr()] if backward else [])]
    kernel(bands * across, (beside, above), *arguments, rows, cols, chunk)
    return sums


@functools.cache
def _flat(name: str, dtype: torch.dtype, approximate: str, device: int) -> tuple[Kernel, int]:
    """A kernel of gelu.cu, and how many elements one of its blocks takes."""
    module = _module("gelu.cu", dtype, approximate, device, (("VECTORS", VECTORS),))
    return module.kernel(name), THREADS * VECTORS * VECTOR_BYTES // dtype.itemsize


@functools.cache
def _biased(
    name: str, dtype: torch.dtype, bias: torch.dtype, approximate: str, device: int
) -> Kernel:
    more = (("BIAS", KINDS.get(bias, 0)), ("THREADS", BIAS_THREADS))
    return _module("bias_gelu.cu", dtype, approximate, device, more).kernel(name)


@functools.cache
def _module(
    file: str, dtype: torch.dtype, approximate: str, device: int, more: tuple[tuple[str, int], ...]
) -> Module:
    if dtype not in KINDS:
        raise ImplUnavailableError(
            f"impl='cuda' cannot run: it takes float32, bfloat16 and float16, x has {dtype}; "
            f"or pass impl='auto'"
        )
    macros = {"SCALAR": KINDS[dtype], "TANH": int(approximate == "tanh")}
    macros |= {"THREADS": THREADS, "STREAM": STREAM, **dict(more)}
    capability = torch.cuda.get_device_capability(device)
    return Module(compiled(HERE / file, capability, macros, HEADERS), device)
