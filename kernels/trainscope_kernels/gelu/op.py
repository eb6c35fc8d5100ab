"""The public GELU functions: what they take, and how torch sees them."""

from __future__ import annotations

from typing import Any

import torch

from trainscope_kernels.dense import check_dense
from trainscope_kernels.errors import ArgumentError
from trainscope_kernels.gelu import run
from trainscope_kernels.registry import define, define_backward
from trainscope_kernels.repeats import Repeats

__all__ = ["bias_gelu", "gelu"]

IMPLS = ("auto", "reference", "cuda", "triton")
FORMS = ("none", "tanh")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_gelu_calls = Repeats()
_bias_gelu_calls = Repeats()


def gelu(x: torch.Tensor, approximate: str = "none", *, impl: str = "auto") -> torch.Tensor:
    """GELU of every element: x times the normal distribution function at x, or its tanh form.

    x: any shape and strides; float32, bfloat16, float16 or float64. The result has x's shape,
        dtype and, where x is dense, strides. Computed in float32 (float64 for float64).
    approximate: "none" (the erf form) or "tanh", as ``torch.nn.functional.gelu``.
    impl: "auto" takes "triton" on a CUDA tensor where Triton can run, else "reference".
        "reference" is eager torch, "cuda" is compiled by NVRTC at first use.

    gelu(+inf) is +inf and gelu(-inf) is 0, where ``torch.nn.functional.gelu`` gives NaN on CUDA;
    their derivatives are 1 and 0. NaN stays NaN. Where the exact result is under 1e-36 in
    magnitude it may come out as 0.

    Raises ArgumentError, and ImplUnavailableError for an impl asked for by name that cannot run.
    """
    options = (approximate, impl)
    y = _gelu_calls.again(options, x)
    if y is None:
        _check(x, approximate, impl)
        y = _gelu_calls.first(options, (x,), lambda: run.forward_again(x, approximate, impl))
    return _gelu(x, approximate, impl) if y is None else y


def bias_gelu(
    x: torch.Tensor, bias: torch.Tensor, approximate: str = "none", *, impl: str = "auto"
) -> torch.Tensor:
    """GELU of x + bias in one pass; the sum is not rounded to x's dtype in between.

    x: (..., features), as in ``gelu``. bias: (features,), in x's dtype or float32, on x's device.
    The gradient of bias is summed in float32 (float64 for float64) in a fixed order: two runs
    give the same bits.

    Raises ArgumentError, and ImplUnavailableError for an impl asked for by name that cannot run.
    """
    options = (approximate, impl)
    y = _bias_gelu_calls.again(options, x, bias)
    if y is None:
        _check(x, approximate, impl)
        _check_bias(x, bias)
        y = _bias_gelu_calls.first(
            options, (x, bias), lambda: run.bias_forward_again(x, bias, approximate, impl)
        )
    return _bias_gelu(x, bias, approximate, impl) if y is None else y


def _check(x: torch.Tensor, approximate: str, impl: str) -> None:
    check_dense("x", x)
    if x.dtype not in DTYPES:
        allowed = ", ".join(str(each).removeprefix("torch.") for each in DTYPES)
        raise ArgumentError(f"x has dtype {x.dtype}; allowed: {allowed}. Convert with x.to(...)")
    if approximate not in FORMS:
        raise ArgumentError(f"approximate={approximate!r}; allowed: 'none' (erf) and 'tanh'")
    if impl not in IMPLS:
        raise ArgumentError(f"impl={impl!r}; allowed: {', '.join(map(repr, IMPLS))}")


def _check_bias(x: torch.Tensor, bias: torch.Tensor) -> None:
    if not isinstance(bias, torch.Tensor):
        raise ArgumentError(f"bias must be a tensor, got {type(bias).__name__}; or call gelu(x)")
    check_dense("bias", bias)
    if x.ndim == 0 or bias.ndim != 1 or bias.shape[0] != x.shape[-1]:
        raise ArgumentError(
            f"bias has shape {tuple(bias.shape)}; allowed: one dimension, as long as the last one "
            f"of x, which has shape {tuple(x.shape)}. For other shapes call gelu(x + bias)"
        )
    if bias.dtype != x.dtype and bias.dtype != torch.float32:
        raise ArgumentError(
            f"bias has dtype {bias.dtype}; allowed: x's dtype ({x.dtype}) or torch.float32"
        )
    if bias.device != x.device:
        raise ArgumentError(f"bias is on {bias.device} and x on {x.device}; move one of them")


def _like_first(x: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _like_second(grad: torch.Tensor, x: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _like_both(
    grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, *others: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), bias.new_empty(bias.shape)


def _save(ctx: Any, arguments: tuple[Any, ...], outputs: Any) -> None:
    *tensors, ctx.approximate, ctx.impl = arguments
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return _gelu_backward(grad, *ctx.saved_tensors, ctx.approximate, ctx.impl), None, None


def _differentiate_bias(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    dx, dbias = _bias_gelu_backward(grad, *ctx.saved_tensors, ctx.approximate, ctx.impl)
    return dx, dbias, None, None


_gelu_backward = define_backward(
    "gelu_backward(Tensor grad, Tensor x, str approximate, str impl) -> Tensor",
    run=run.backward,
    fake=_like_second,
    of="gelu",
)
_gelu = define(
    "gelu(Tensor x, str approximate, str impl) -> Tensor",
    run=run.forward,
    fake=_like_first,
    save=_save,
    backward=_differentiate,
)
_bias_gelu_backward = define_backward(
    "bias_gelu_backward(Tensor grad, Tensor x, Tensor bias, str approximate, str impl)"
    " -> (Tensor, Tensor)",
    run=run.bias_backward,
    fake=_like_both,
    of="bias_gelu",
)
_bias_gelu = define(
    "bias_gelu(Tensor x, Tensor bias, str approximate, str impl) -> Tensor",
    run=run.bias_forward,
    fake=_like_first,
    save=_save,
    backward=_differentiate_bias,
)
