"""What the attention ops do on real tensors and on fake ones, for each impl."""

from __future__ import annotations

import functools
from typing import Any

import torch

from trainscope_kernels.attention import packed, reference
from trainscope_kernels.attention.masking import Band
from trainscope_kernels.errors import ImplUnavailableError
from trainscope_kernels.impls import interpreting

__all__ = ["backward", "fake_backward", "fake_forward", "forward", "gluon"]

Pair = tuple[torch.Tensor, torch.Tensor]
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Maybe = torch.Tensor | None


@functools.cache
def _triton() -> Any:
    """The launchers; imported where they are first needed, so that importing us loads no Triton."""
    from trainscope_kernels.attention import triton_delta, triton_dkdv, triton_dq, triton_forward
    from trainscope_kernels.attention.triton_launch import Call

    return Call, triton_forward.forward, triton_delta.row_terms, triton_dq.dq, triton_dkdv.dkdv


@functools.cache
def gluon() -> Any:
    """The Gluon launchers, imported as late."""
    from trainscope_kernels.attention import gluon_launch

    return gluon_launch


_interpreted = functools.cache(interpreting)  # Triton itself asks once, when a kernel is defined


def _require_dtype(q: torch.Tensor) -> None:
    """Raise where Triton has no right dot product of this dtype."""
    if q.dtype is torch.bfloat16 and _interpreted():
        raise ImplUnavailableError(
            "impl='triton' cannot run: Triton's interpreter multiplies bfloat16 wrongly; use "
            "float16 or float32 with TRITON_INTERPRET=1"
        )
    if q.dtype is torch.float64 and not _interpreted():
        raise ImplUnavailableError(
            "impl='triton' cannot run: its GPU kernels take no float64; convert to float32, or "
            "pass impl='reference'"
        )


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Maybe,
    cu_q: Maybe,
    cu_k: Maybe,
    scale: float,
    softcap: float,
    left: int,
    right: int,
    from_end: bool,
    impl: str,
) -> Pair:
    """Output and LSE; new memory."""
    band = Band(left, right, from_end)
    if impl == "reference":
        if cu_q is not None and cu_k is not None:
            return packed.forward(q, k, v, cu_q, cu_k, scale, softcap, band)
        out, lse = reference.forward(q, k, v, mask, scale, softcap, band)
        return _like(q, v.shape[3]).copy_(out), lse.contiguous()
    if impl == "triton":
        _require_dtype(q)
    out, lse = fake_forward(q, k, v, mask, cu_q, cu_k, scale, softcap, left, right, from_end, impl)
    if impl == "gluon":
        gluon().forward(q, k, v, out, lse, scale, causal=right == 0)
        return out, lse
    if cu_q is not None:
        # rows that belong to no sequence are written by no program
        out.zero_()
        lse.fill_(-torch.inf)
    if lse.numel() > 0:
        call, launch, *_ = _triton()
        launch(q, k, v, out, lse, call(mask, cu_q, cu_k, scale, softcap, band))
    return out, lse


def fake_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *settings: Any) -> Pair:
    """Output and LSE as empty memory."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    lse = torch.empty(q.shape[:3], dtype=wide, device=q.device)
    return _like(q, v.shape[3]), lse


def backward(
    grad_out: torch.Tensor,
    grad_lse: Maybe,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Maybe,
    cu_q: Maybe,
    cu_k: Maybe,
    out: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    softcap: float,
    left: int,
    right: int,
    from_end: bool,
    impl: str,
    of_q: bool,
    of_kv: bool,
) -> Triple:
    """Gradients of q, k and v; those not asked for are empty."""
    band = Band(left, right, from_end)
    grads = _empty_grads(q, k, v, of_q, of_kv)
    if impl == "reference":
        if cu_q is not None and cu_k is not None:
            made = packed.backward(
                grad_out, grad_lse, q, k, v, cu_q, cu_k, out, lse, scale, softcap, band
            )
        else:
            made = reference.backward(
                grad_out, grad_lse, q, k, v, out, lse, mask, scale, softcap, band
            )
        for grad, value in zip(grads, made, strict=True):
            if grad.shape == value.shape:
                grad.copy_(value)
        return grads
    if impl == "gluon":
        gluon().backward(grad_out, grad_lse, q, k, v, out, lse, grads, scale, causal=right == 0)
        return grads
    if cu_q is not None:
        for grad in grads:
            grad.zero_()
    call, _, row_terms, dq, dkdv = _triton()
    settings = call(mask, cu_q, cu_k, scale, softcap, band)
    terms = lse if lse.numel() == 0 else row_terms(out, grad_out, grad_lse, lse)
    if grads[0].numel() > 0:
        dq(grad_out, q, k, v, terms, grads[0], settings)
    if grads[1].numel() > 0:
        dkdv(grad_out, q, k, v, terms, grads[1], grads[2], settings)
    return grads


def fake_backward(
    grad_out: torch.Tensor,
    grad_lse: Maybe,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *settings: Any,
) -> Triple:
    """The three gradients as empty memory."""
    return _empty_grads(q, k, v, *settings[-2:])


def _empty_grads(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, of_q: bool, of_kv: bool
) -> Triple:
    none = (0,)
    return (
        _like(q, q.shape[3]) if of_q else q.new_empty(none),
        _like(k, k.shape[3]) if of_kv else k.new_empty(none),
        _like(v, v.shape[3]) if of_kv else v.new_empty(none),
    )


def _like(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Empty (batch, heads, sequence, dim); heads inside the sequence in memory where x's are.

    So the usual (batch, sequence, heads * dim) of a projection needs no copy on the way out.
    """
    batch, heads, length, own_dim = x.shape
    if dim == own_dim and x.is_contiguous():
        return torch.empty_like(x)
    if x.stride(1) < x.stride(2):
        return x.new_empty((batch, length, heads, dim)).transpose(1, 2)
    return x.new_empty((batch, heads, length, dim))
