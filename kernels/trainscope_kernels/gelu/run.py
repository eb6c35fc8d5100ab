"""What the GELU ops do on real tensors: which impl computes, and in which memory.

An impl takes elements that lie without gaps, in the same order in all its tensors, and writes into
the tensor that it is given. Views that lie otherwise are copied here, for all impls alike.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch

from trainscope_kernels.gelu import reference
from trainscope_kernels.impls import require_triton, triton_reason
from trainscope_kernels.repeats import Again

__all__ = [
    "backward",
    "bias_backward",
    "bias_forward",
    "bias_forward_again",
    "forward",
    "forward_again",
    "implementation",
]


@functools.cache
def implementation(impl: str, device: torch.device) -> ModuleType:
    """The module that computes, imported only now: importing the package loads no Triton.

    impl="auto" is resolved here, below torch.compile's tracer, which cannot look into devices.
    Raises ImplUnavailableError for an impl asked for by name that cannot run on the device.
    """
    if impl == "auto":
        usable = device.type == "cuda" and triton_reason(device) is None
        impl = "triton" if usable else "reference"
    if impl == "triton":
        require_triton(device)
        from trainscope_kernels.gelu import triton_impl

        return triton_impl
    if impl == "cuda":
        from trainscope_kernels.gelu import cuda_impl

        cuda_impl.require(device)
        return cuda_impl
    return reference


def forward(x: torch.Tensor, approximate: str, impl: str) -> torch.Tensor:
    """gelu(x), in x's dtype and, where x has no gaps or overlaps, its strides."""
    computing = implementation(impl, x.device)
    y = torch.empty_like(x)
    if y.numel():
        # a view with gaps or overlaps is copied into the result and worked on in place there
        source = x if x.is_contiguous() or x.stride() == y.stride() else y.copy_(x)
        computing.forward(source, y, approximate)
    return y


def forward_again(x: torch.Tensor, approximate: str, impl: str) -> Again | None:
    """What does ``forward`` of other tensors like x; None where each has to be looked at."""
    computing = implementation(impl, x.device)
    if computing is reference or not x.numel() or x.stride() != torch.empty_like(x).stride():
        return None
    return computing.forward_again(x, approximate)


def bias_forward_again(
    x: torch.Tensor, bias: torch.Tensor, approximate: str, impl: str
) -> Again | None:
    """As ``forward_again``, of ``bias_forward``."""
    computing = implementation(impl, x.device)
    dense = x.is_contiguous() and bias.is_contiguous()
    if computing is reference or not x.numel() or not dense:
        return None
    return computing.bias_forward_again(x, bias, approximate)


def backward(grad: torch.Tensor, x: torch.Tensor, approximate: str, impl: str) -> torch.Tensor:
    """Grad times the derivative at x, in x's dtype and strides as ``forward``."""
    computing = implementation(impl, x.device)
    dx = torch.empty_like(x)
    if dx.numel():
        source = x if x.stride() == dx.stride() else dx.copy_(x)
        if grad.stride() != dx.stride() or grad.dtype != dx.dtype:
            grad = torch.empty_like(dx).copy_(grad)
        computing.backward(grad, source, dx, approximate)
    return dx


def bias_forward(x: torch.Tensor, bias: torch.Tensor, approximate: str, impl: str) -> torch.Tensor:
    """gelu(x + bias), in x's dtype and strides as ``forward``."""
    computing = implementation(impl, x.device)
    y = torch.empty_like(x)
    if y.numel():
        dense = _contiguous_like(y)
        computing.bias_forward(x.contiguous(), bias.contiguous(), dense, approximate)
        if dense is not y:
            y.copy_(dense)
    return y


def bias_backward(
    grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, approximate: str, impl: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of x, in its strides as ``forward``, and of bias."""
    computing = implementation(impl, x.device)
    dx = torch.empty_like(x)
    if not dx.numel():
        return dx, bias.new_zeros(bias.shape)
    dense = _contiguous_like(dx)
    inputs = (grad.to(x.dtype).contiguous(), x.contiguous(), bias.contiguous())
    dbias = computing.bias_backward(*inputs, dense, approximate)
    if dense is not dx:
        dx.copy_(dense)
    return dx, dbias.to(bias.dtype)


def _contiguous_like(out: torch.Tensor) -> torch.Tensor:
    if out.is_contiguous():
        return out
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)
