"""What GELU is compared with: the formula in eager torch, and the first kernel anyone writes."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import torch

from trainscope_kernels.cuda_driver import Kernel, Module
from trainscope_kernels.errors import ArgumentError
from trainscope_kernels.gelu import op
from trainscope_kernels.nvrtc import compiled

__all__ = ["manual_gelu", "naive_cuda_gelu"]

SOURCE = Path(op.__file__).with_name("naive_gelu.cu")
THREADS = 1024


def manual_gelu(x: torch.Tensor) -> torch.Tensor:
    """The tanh form with every operator a kernel of its own, each through memory and back."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def naive_cuda_gelu(x: torch.Tensor) -> torch.Tensor:
    """The tanh form, one float32 element a thread.

    x: contiguous float32 on a CUDA device, fewer than 2**31 elements; else raises ArgumentError.
    """
    plain = x.dtype == torch.float32 and x.is_contiguous() and x.is_cuda
    if not plain or x.numel() >= 2**31:
        raise ArgumentError(
            f"x has {x.numel()} elements of {x.dtype} on {x.device}, contiguous: "
            f"{x.is_contiguous()}; pass plain float32 on a GPU, fewer than 2**31 elements"
        )
    y = torch.empty_like(x)
    n = x.numel()
    kernel = _naive(x.get_device())
    kernel(-(-n // THREADS), (THREADS, 1), x.data_ptr(), y.data_ptr(), n)
    return y


@functools.cache
def _naive(device: int) -> Kernel:
    capability = torch.cuda.get_device_capability(device)
    return Module(compiled(SOURCE, capability, {}, []), device).kernel("naive_gelu")
