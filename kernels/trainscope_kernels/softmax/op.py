"""The softmax function: its arguments, the rule of ``impl="auto"``, and the registered ops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainscope_kernels.dense import check_dense
from trainscope_kernels.errors import ArgumentError, ImplUnavailableError
from trainscope_kernels.impls import require_triton, triton_reason
from trainscope_kernels.registry import define, define_backward
from trainscope_kernels.repeats import Again, Repeats
from trainscope_kernels.softmax import reference

__all__ = ["IMPLS", "softmax"]

IMPLS = ("auto", "reference", "triton", "cuda")
ROW_BYTES_OF_TRITON = 32768
"""A longer row is a cluster's where there are clusters: measured in softmax_clusters_h200.txt."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_calls = Repeats()


def softmax(
    x: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None, impl: str = "auto"
) -> Tensor:
    """Softmax of ``x`` along ``dim``; contiguous, as torch.softmax returns it.

    x: float16, bfloat16, float32 or float64, any shape and strides; empty and 0-d are allowed.
    dtype: of the result; None means x's own, and float32 under CUDA autocast, as in torch. The
    sums are made in float32 (float64 for float64) whatever it is; the gradient has x's dtype.
    impl: "reference" (torch operations, any device), "triton" (CUDA, compute capability 8.0 or
    newer), "cuda" (9.0 or newer, the last dim, rows of up to 512 KiB, the result in x's dtype), or
    "auto": for CUDA tensors "cuda" where a row takes more than 32 KiB and it can run, else "triton"
    where that can, float64 excepted, else "reference".

    "triton" reads a row of more than 128 KiB twice; "cuda" reads any once, but copies one that does
    not start at the same distance from a multiple of 16 bytes as its result first.
    A row with +inf or NaN, or of -inf alone, is NaN, as in torch. Differentiable once.
    Raises ArgumentError for a value that is not allowed and ImplUnavailableError where the impl
    asked for by name cannot run.
    """
    # 1.0 and 1 are found in one place, and only one of them is a dim
    options = (dim, type(dim), dtype, impl)
    y = _calls.again(options, x)
    if y is not None:
        return y
    check_dense("x", x)
    if x.dtype not in DTYPES:
        raise ArgumentError(
            f"x has dtype {x.dtype}; softmax takes float16, bfloat16, float32 and float64: "
            "convert it first, for example x.float()"
        )
    if not isinstance(dim, int):
        raise ArgumentError(f"dim must be an int, got {type(dim).__name__}; -1 is the last one")
    dims = x.dim() or 1
    if not -dims <= dim < dims:
        raise ArgumentError(
            f"dim is {dim}; x has {x.dim()} dims, so {-dims} to {dims - 1} are allowed"
        )
    if dtype is None:
        if x.is_cuda and x.dtype != torch.float64 and torch.is_autocast_enabled("cuda"):
            dtype = torch.float32
    elif dtype not in DTYPES:
        raise ArgumentError(
            f"dtype is {dtype}; softmax gives float16, bfloat16, float32 and float64"
        )
    if impl not in IMPLS:
        raise ArgumentError(f"impl is {impl!r}; allowed are {', '.join(map(repr, IMPLS))}")
    y = _calls.first(options, (x,), lambda: _forward_again(x, dim % dims, dtype, impl))
    return _softmax_forward(x, dim % dims, dtype, impl) if y is None else y


def _chosen(x: Tensor, dim: int, dtype: torch.dtype | None, impl: str) -> str:
    """The impl that runs; asked inside the op, where torch.compile does not trace the question."""
    if impl == "triton":
        require_triton(x.device)
    elif impl == "cuda":
        reason = _reason_against_cuda(x, dim, dtype)
        if reason is not None:
            raise ImplUnavailableError(f"impl='cuda' cannot run: {reason}; or pass impl='auto'")
    elif impl == "auto":
        if not x.is_cuda or x.dtype == torch.float64:
            return "reference"
        long = x.dim() > 0 and x.shape[dim] * x.itemsize > ROW_BYTES_OF_TRITON
        if long and _reason_against_cuda(x, dim, dtype) is None:
            return "cuda"
        return "triton" if triton_reason(x.device) is None else "reference"
    return impl


def _reason_against_cuda(x: Tensor, dim: int, dtype: torch.dtype | None) -> str | None:
    from trainscope_kernels.softmax import cuda_impl

    columns, last = (x.shape[dim], dim == x.dim() - 1) if x.dim() else (1, True)
    result = x.dtype if dtype is None else dtype
    return cuda_impl.cuda_reason(x.device) or cuda_impl.call_reason(columns, last, x.dtype, result)


class Computing(NamedTuple):
    """What an impl does. again: what ``repeats`` keeps of a forward; None: it keeps nothing."""

    forward: Callable[[Tensor, int, torch.dtype | None], Tensor]
    backward: Callable[[Tensor, Tensor, int, torch.dtype | None], Tensor]
    again: Callable[[Tensor, int, torch.dtype | None], Again | None] | None


@functools.cache
def _computing(impl: str) -> Computing:
    if impl == "reference":
        return Computing(reference.softmax_forward, reference.softmax_backward, None)
    if impl == "cuda":
        from trainscope_kernels.softmax import cuda_impl as cuda

        return Computing(cuda.softmax_forward, cuda.softmax_backward, cuda.softmax_forward_again)
    from trainscope_kernels.softmax import triton_backward, triton_forward

    return Computing(
        triton_forward.softmax_forward,
        triton_backward.softmax_backward,
        triton_forward.softmax_forward_again,
    )


def _forward_again(x: Tensor, dim: int, dtype: torch.dtype | None, impl: str) -> Again | None:
    again = _computing(_chosen(x, dim, dtype, impl)).again
    return None if again is None else again(x, dim, dtype)


def _run_forward(x: Tensor, dim: int, dtype: torch.dtype | None, impl: str) -> Tensor:
    return _computing(_chosen(x, dim, dtype, impl)).forward(x, dim, dtype)


def _run_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype | None, impl: str) -> Tensor:
    return _computing(_chosen(y, dim, dtype, impl)).backward(dy, y, dim, dtype)


def _fake_forward(x: Tensor, dim: int, dtype: torch.dtype | None, impl: str) -> Tensor:
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _fake_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype | None, impl: str) -> Tensor:
    return torch.empty_like(y, dtype=dtype, memory_format=torch.contiguous_format)


def _save(ctx: Any, arguments: tuple[Any, ...], y: Tensor) -> None:
    x, ctx.dim, _, ctx.impl = arguments
    ctx.x_dtype = None if x.dtype == y.dtype else x.dtype
    ctx.save_for_backward(y)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
    (y,) = ctx.saved_tensors
    return _softmax_backward(dy, y, ctx.dim, ctx.x_dtype, ctx.impl), None, None, None


_softmax_backward = define_backward(
    "softmax_backward(Tensor dy, Tensor y, int dim, ScalarType? dtype, str impl) -> Tensor",
    run=_run_backward,
    fake=_fake_backward,
    of="softmax",
)
_softmax_forward = define(
    "softmax_forward(Tensor x, int dim, ScalarType? dtype, str impl) -> Tensor",
    run=_run_forward,
    fake=_fake_forward,
    save=_save,
    backward=_backward,
)
