"""flash_attention: what a user calls, and which impl its call goes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trainscope_kernels.attention import run
from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.checks import (
    check_impl,
    check_same_kind,
    check_shapes,
    full_mask,
    number_of,
    refuse,
)
from trainscope_kernels.attention.gluon_envelope import call_refusal, gpu_refusal
from trainscope_kernels.attention.masking import band_of
from trainscope_kernels.attention.registered import attention_op
from trainscope_kernels.errors import ImplUnavailableError
from trainscope_kernels.impls import require_triton, triton_reason
from trainscope_kernels.repeats import Repeats

__all__ = [
    "any_autocast",
    "attention_op",
    "flash_attention",
    "gluon_or",
    "in_autocast_dtype",
    "pick_impl",
]

_calls = Repeats()
any_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
"""Whether autocast is on for some device: cheaper to ask than which device a tensor is on."""
GLUON_FROM = 512
"""Queries from which on "auto" looks at Gluon. Its four tensor maps are made anew in each launch,
which costs more CPU time than a short sequence takes on the GPU; at 512 it ties with cuDNN."""


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: str | bool | None = None,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    mask: torch.Tensor | None = None,
    impl: str = "auto",
    return_lse: bool = False,
    deterministic: bool = False,
    **not_offered: object,
) -> Any:
    """Softmax attention, ``softmax(scale * q @ k^T) @ v``, without the score matrix in memory.

    q: (batch, heads, queries, head_dim); k: (batch, key heads, keys, head_dim); v: (batch, key
    heads, keys, value dim). Query heads are a multiple of key heads (GQA, MQA); both dims 1 to
    256; float16, bfloat16, float32, float64; any strides.
    causal: None; "top-left": query i sees keys up to i, as scaled_dot_product_attention's
    is_causal; "bottom-right": the last query sees all keys, as in flash-attn; True where the
    lengths are equal, so that both are the same.
    scale: of the scores; None is ``1 / sqrt(head_dim)``.
    window: (left, right) keys seen before and after the query's own; -1 leaves a side open. With
    ``causal`` both hold, counted the same way; without it, from the end, as in flash-attn.
    softcap: scores become ``softcap * tanh(score / softcap)``, before any mask.
    mask: broadcasts to (batch, heads, queries, keys); boolean (True may be seen) or added to the
    scores. It gets no gradient.
    impl: "gluon" (Hopper with Triton 3.6, and only what the table in gluon_envelope.py says),
    "triton" (CUDA, compute capability 8.0 and newer; no float64), "reference" (eager torch, any
    device, holds the scores), or "auto": the first of them that takes this call, as they are
    fastest in this order; "gluon" from 512 queries on only, for making its tensor maps takes the
    CPU longer than fewer take the GPU.
    return_lse: also return the natural-log LSE of the scores, (batch, heads, queries), float32
    (float64 for float64), differentiable.
    deterministic: the same bits every run, gradients included; "auto" then picks what is so.

    Returns (batch, heads, queries, value dim), in the memory order of q where its heads lie
    inside its sequence. A query that sees no key gets 0, LSE -inf, and no gradient. There is no
    dropout. Raises ArgumentError and ImplUnavailableError.
    """
    if not_offered:
        refuse(not_offered)
    options = None
    if mask is None and (window is None or not torch.compiler.is_compiling()):
        # what is equal is found in one place, and only some of 1, 1.0 and True are allowed
        sides = None if window is None else str(window)
        options = causal, type(causal), sides, scale, softcap, impl, return_lse, deterministic
        made = _calls.again(options, q, k, v)
        if made is not None:
            return made
    if any_autocast():
        q, k, v = in_autocast_dtype(q, k, v)
    check_same_kind(q, k, v)
    check_shapes(q.shape, k.shape, v.shape)
    if causal is None and window is None:
        left, right, from_end = -1, -1, False
    else:
        left, right, from_end = band_of(causal, window, q.shape[2] == k.shape[2])
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else number_of("scale", scale, 1.0)
    cap = 0.0 if softcap is None else number_of("softcap", softcap, 0.0)
    if impl == "gluon" or (impl == "auto" and q.shape[2] >= GLUON_FROM):
        refusal = gpu_refusal(q.device) or call_refusal(
            q, k, v, scale=scale, softcap=cap, masked=mask is not None
        )
        if refusal is None and impl == "auto" and right >= 0:
            call = Call(q, k, v, None, None, None, scale, cap, left, right, from_end)
            if _cannot_be_scheduled(call):
                refusal = "its schedule cannot be copied while a CUDA graph is captured"
                options = None  # so it is now, and not of every such call
        impl = gluon_or(impl, refusal)
    impl = pick_impl(impl, q)
    if impl == "gluon" and (deterministic or torch.are_deterministic_algorithms_enabled()):
        impl = run.DETERMINISTIC
    mask = None if mask is None else full_mask(mask, q, k)
    call = Call(q, k, v, mask, None, None, scale, cap, left, right, from_end)
    # with Triton a longer one keeps the GPU busy for longer than the CPU works on it
    if options is not None and (q.shape[2] < GLUON_FROM or impl in run.GLUON):
        made = _calls.first(options, (q, k, v), lambda: run.forward_again(call, impl, return_lse))
        if made is not None:
            return made
    out, lse = attention_op(*call, impl)
    return (out, lse) if return_lse else out


def in_autocast_dtype(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
    """The tensors in their device's autocast dtype, as scaled_dot_product_attention takes them."""
    device_type = tensors[0].device.type
    if not torch.is_autocast_enabled(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type)
    return [x if x.dtype == torch.float64 else x.to(dtype) for x in tensors]


def gluon_or(impl: str, refusal: str | None) -> str:
    """ "gluon" where nothing speaks against it, else ``impl``; raises where that is "gluon"."""
    if refusal is None:
        return "gluon"
    if impl == "gluon":
        raise ImplUnavailableError(f"impl='gluon' cannot run: {refusal}; or pass impl='auto'")
    return impl


def _cannot_be_scheduled(call: Call) -> bool:
    """Whether a CUDA graph is captured and Gluon has no schedule yet for this causal call.

    torch.compile decides before any capture.
    """
    return (
        not torch.compiler.is_compiling()
        and torch.cuda.is_current_stream_capturing()
        and not run.gluon().is_scheduled(call)
    )


def pick_impl(impl: str, q: torch.Tensor) -> str:
    """The impl that runs for ``impl`` on this tensor, "gluon" apart; raises where it cannot."""
    if impl == "auto":
        usable = q.is_cuda and q.dtype != torch.float64 and triton_reason(q.device) is None
        return "triton" if usable else "reference"
    check_impl(impl)
    if impl == "triton":
        require_triton(q.device)
    return impl
