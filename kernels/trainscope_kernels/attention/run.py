"""What the attention ops do on real tensors and on fake ones, for each impl."""

from __future__ import annotations

import functools
from typing import Any

import torch

from trainscope_kernels.attention import packed, reference
from trainscope_kernels.attention.call import Call
from trainscope_kernels.errors import ImplUnavailableError
from trainscope_kernels.impls import interpreting
from trainscope_kernels.repeats import Again

__all__ = [
    "DETERMINISTIC",
    "GLUON",
    "backward",
    "fake_backward",
    "fake_forward",
    "forward",
    "forward_again",
    "gluon",
]

Pair = tuple[torch.Tensor, torch.Tensor]
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_CALL = len(Call._fields)
"""An op's first arguments are these of its Call."""
DETERMINISTIC = "gluon-deterministic"
"""What the op is told where the other way of summing dQ would not give the same bits each time."""
GLUON = ("gluon", DETERMINISTIC)


@functools.cache
def _triton() -> Any:
    """The launchers; imported where they are first needed, so that importing us loads no Triton."""
    from trainscope_kernels.attention import triton_delta, triton_dkdv, triton_dq, triton_forward

    return triton_forward.forward, triton_delta.row_terms, triton_dq.dq, triton_dkdv.dkdv


@functools.cache
def gluon() -> Any:
    """The Gluon launchers, imported as late."""
    from trainscope_kernels.attention import gluon_launch

    return gluon_launch


_interpreted = functools.cache(interpreting)  # Triton itself asks once, when a kernel is defined


def _require_dtype(dtype: torch.dtype) -> None:
    """Raise where Triton has no right dot product of this dtype."""
    if dtype is torch.bfloat16 and _interpreted():
        raise ImplUnavailableError(
            "impl='triton' cannot run: Triton's interpreter multiplies bfloat16 wrongly; use "
            "float16 or float32 with TRITON_INTERPRET=1"
        )
    if dtype is torch.float64 and not _interpreted():
        raise ImplUnavailableError(
            "impl='triton' cannot run: its GPU kernels take no float64; convert to float32, or "
            "pass impl='reference'"
        )


def forward(*arguments: Any) -> Pair:
    """Output and LSE, new memory, of the op's arguments: a Call's, then the impl."""
    call, impl = Call(*arguments[:_CALL]), arguments[_CALL]
    if impl == "reference":
        out, lse = (reference if call.cu_q is None else packed).forward(call)
        return _like(call.q, call.v.shape[3]).copy_(out), lse.contiguous()
    out, lse = fake_forward(*arguments)
    if call.cu_q is not None:
        # rows that belong to no sequence are written by no program
        out.zero_()
        lse.fill_(-torch.inf)
    if impl in GLUON:
        gluon().forward(call, out, lse)
        return out, lse
    _require_dtype(out.dtype)
    if lse.numel() > 0:
        _triton()[0](call, out, lse)
    return out, lse


def forward_again(call: Call, impl: str, return_lse: bool) -> Again | None:
    """What makes the output, and the LSE if asked, of other q, k and v like the call's.

    None where each call has to be looked at.
    """
    if impl in GLUON:
        return gluon().forward_again(call, *fake_forward(*call), return_lse)
    if impl != "triton":
        return None
    from trainscope_kernels.attention import triton_forward

    out, lse = fake_forward(*call)
    _require_dtype(out.dtype)
    return triton_forward.forward_again(call, out, lse, return_lse)


def fake_forward(*arguments: Any) -> Pair:
    """Output and LSE as empty memory."""
    q, _, v = arguments[:3]
    batch, heads, length, _ = q.shape
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    return _like(q, v.shape[3]), q.new_empty((batch, heads, length), dtype=wide)


def backward(*arguments: Any) -> Triple:
    """Gradients of q, k and v; those not asked for are empty. See ``op.py`` for the arguments."""
    call = Call(*arguments[:_CALL])
    grad_out, grad_lse, out, lse, impl, _, _ = arguments[_CALL:]
    grads = fake_backward(*arguments)
    if impl == "reference":
        made = (reference if call.cu_q is None else packed).backward(
            call, grad_out, grad_lse, out, lse
        )
        for grad, value in zip(grads, made, strict=True):
            if grad.shape == value.shape:
                grad.copy_(value)
        return grads
    if call.cu_q is not None:
        # rows that see nothing, or that nobody sees, are written by no program
        for grad in grads:
            grad.zero_()
    if impl in GLUON:
        gluon().backward(
            call, grad_out, grad_lse, out, lse, grads, deterministic=impl == DETERMINISTIC
        )
        return grads
    _, row_terms, dq, dkdv = _triton()
    terms = lse if lse.numel() == 0 else row_terms(out, grad_out, grad_lse, lse)
    if grads[0].numel() > 0:
        dq(call, grad_out, terms, grads[0])
    if grads[1].numel() > 0:
        dkdv(call, grad_out, terms, grads[1], grads[2])
    return grads


def fake_backward(*arguments: Any) -> Triple:
    """The three gradients as empty memory; 0 elements where they are not asked for."""
    *_, of_q, of_kv = arguments
    wanted = zip(arguments[:3], (of_q, of_kv, of_kv), strict=True)
    of_q, of_k, of_v = (_like(x, x.shape[3]) if want else x.new_empty((0,)) for x, want in wanted)
    return of_q, of_k, of_v


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
