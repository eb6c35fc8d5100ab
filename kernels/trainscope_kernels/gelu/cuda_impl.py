"""GELU in CUDA C++: compiled at first use by NVRTC, launched on torch's current stream.

Tensors lie as ``run.py`` says.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

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
    at, to = x.data_ptr(), y.data_ptr()
    launch = _by_rows("bias_forward", x, bias, approximate, at | to)
    launch.kernel(launch.blocks, launch.threads, at, bias.data_ptr(), to, *launch.lengths)


def bias_forward_again(x: torch.Tensor, bias: torch.Tensor, approximate: str) -> Again:
    """What makes the GELU of x + bias for tensors like these, in memory of its own."""
    kernel, blocks, threads, lengths, by_vectors = _by_rows("bias_forward", x, bias, approximate, 0)

    def again(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor | None:
        y = torch.empty_like(x)
        at, to = x.data_ptr(), y.data_ptr()
        if by_vectors and (at | to) % VECTOR_BYTES:
            return None
        kernel(blocks, threads, at, bias.data_ptr(), to, *lengths)
        return y

    return again


def bias_backward(
    grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, dx: torch.Tensor, approximate: str
) -> torch.Tensor:
    """Write x's gradient into dx; returns bias's, (features,), in float32.

    The latter comes from partial sums that are added in a fixed order.
    """
    of, at, to = grad.data_ptr(), x.data_ptr(), dx.data_ptr()
    launch = _by_rows("bias_backward", x, bias, approximate, of | at | to)
    rows, cols, chunk = launch.lengths
    above = launch.threads[1]
    bands = -(-rows // chunk)
    sums = torch.empty((bands * above, cols), dtype=torch.float32, device=x.device)
    pointers = of, at, bias.data_ptr(), to, sums.data_ptr()
    launch.kernel(launch.blocks, launch.threads, *pointers, *launch.lengths)
    return sums.sum(0)


class _ByRows(NamedTuple):
    """A launch of a kernel of bias_gelu.cu."""

    kernel: Kernel
    blocks: int
    threads: tuple[int, int]
    lengths: tuple[int, int, int]
    """Rows, columns, and rows of a block."""
    by_vectors: bool
    """It reads and writes 16 bytes at a time."""


def _by_rows(
    name: str, x: torch.Tensor, bias: torch.Tensor, approximate: str, addresses: int
) -> _ByRows:
    """The launch for such tensors; ``addresses`` has the bits of theirs, bias's aside."""
    cols = x.shape[-1]
    rows = x.numel() // cols
    lanes = VECTOR_BYTES // x.element_size()
    by_vectors = cols % lanes == 0 and addresses % VECTOR_BYTES == 0
    if not by_vectors:
        lanes = 1
    # narrow rows share a block, so that its threads are not idle
    beside = min(BIAS_THREADS, 1 << (-(-cols // lanes) - 1).bit_length())
    above = BIAS_THREADS // beside
    across = -(-cols // (beside * lanes))
    rows_a_thread = max(
        ROWS_AT_LEAST if name == "bias_backward" else ROWS_UNROLLED,
        -(-rows * across * beside // THREADS_ENOUGH),
    )
    chunk = rows_a_thread * above
    variant = name if by_vectors else f"{name}_any"
    kernel = _biased(variant, x.dtype, bias.dtype, approximate, x.get_device())
    blocks = -(-rows // chunk) * across
    return _ByRows(kernel, blocks, (beside, above), (rows, cols, chunk), by_vectors)


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
