"""flash_attention_varlen: sequences of different lengths packed in one tensor."""

from __future__ import annotations

import math
from typing import Any

import torch

from trainscope_kernels.attention.checks import (
    check_cu_seqlens,
    check_dims,
    check_heads,
    check_same_kind,
    number_of,
    refuse,
)
from trainscope_kernels.attention.gluon_envelope import call_refusal, gpu_refusal
from trainscope_kernels.attention.masking import band_of
from trainscope_kernels.attention.op import (
    any_autocast,
    attention_op,
    gluon_or,
    in_autocast_dtype,
    pick_impl,
)
from trainscope_kernels.errors import ArgumentError

__all__ = ["flash_attention_varlen"]

GLUON_DIM = 128
GLUON_FROM = 400_000
"""Queries, counted in all heads, from which on "auto" takes Gluon, at this head_dim. Its time by
Triton's on an H200, causal, forward / with backward: 0.73 / 0.81 to 0.85 at 410,000, of sequences
of 1600; at 260,000, of 64 to 1024, 0.82 to 1.02 / 0.80 to 0.91 on the GPU, but there the CPU takes
longer for Gluon's launches. At 64 the forward takes as long as Triton's and the backward longer;
other head dims were not compared."""


def flash_attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    causal: str | bool | None = None,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    impl: str = "auto",
    return_lse: bool = False,
    deterministic: bool = False,
    **not_offered: object,
) -> Any:
    """Softmax attention inside each of several packed sequences.

    q: (total queries, heads, head_dim); k: (total keys, key heads, head_dim); v: (total keys, key
    heads, value dim); dims, dtypes and strides as in flash_attention.
    cu_seqlens_q, cu_seqlens_k: int32 or int64, on the same device, (sequences + 1,): the first
    row of each sequence, then the end of the last. A sequence may be empty, on either side.
    max_seqlen_q, max_seqlen_k: taken for flash-attn's signature; the kernels find the lengths on
    the device, so a wrong one does no harm and nothing is read back.
    causal: "top-left" or "bottom-right"; True where both offsets are the same tensor, for lengths
    are not read.
    scale, window, softcap, impl, return_lse, deterministic: as in flash_attention, but that "auto"
    takes "gluon" with head_dim 128 and 400,000 queries in all heads only. For a mask use
    flash_attention. impl "reference" reads the offsets on the host.

    Returns (total queries, heads, value dim), 0 in rows of no sequence; the LSE has the shape
    (heads, total queries) and is -inf there. There is no dropout. Raises ArgumentError and
    ImplUnavailableError.
    """
    if not_offered:
        refuse(not_offered)
    if any_autocast():
        q, k, v = in_autocast_dtype(q, k, v)
    check_same_kind(q, k, v)
    _check_packed(q, k, v)
    check_cu_seqlens("cu_seqlens_q", cu_seqlens_q, q.device)
    check_cu_seqlens("cu_seqlens_k", cu_seqlens_k, q.device)
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise ArgumentError(
            "cu_seqlens_q and cu_seqlens_k must tell of equally many sequences, got "
            f"{cu_seqlens_q.shape[0] - 1} and {cu_seqlens_k.shape[0] - 1}"
        )
    same = cu_seqlens_q is cu_seqlens_k
    left, right, from_end = band_of(causal, window, same)
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else number_of("scale", scale, 1.0)
    cap = 0.0 if softcap is None else number_of("softcap", softcap, 0.0)
    if impl == "gluon" or (impl == "auto" and _is_faster_in_gluon(q)):
        refusal = gpu_refusal(q.device) or call_refusal(
            q, k, v, scale=scale, softcap=cap, masked=False
        )
        impl = gluon_or(impl, refusal)
    out, lse = attention_op(
        q,
        k,
        v,
        None,
        cu_seqlens_q.contiguous(),
        cu_seqlens_k.contiguous(),
        scale,
        cap,
        left,
        right,
        from_end,
        pick_impl(impl, q),
    )
    out = out[0].transpose(0, 1)
    return (out, lse[0]) if return_lse else out


def _is_faster_in_gluon(q: torch.Tensor) -> bool:
    return q.shape[3] == GLUON_DIM and q.shape[1] * q.shape[2] >= GLUON_FROM


def _check_packed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    if q.dim() != 3 or k.dim() != 3 or v.dim() != 3:
        raise ArgumentError(
            "q, k and v must have the shape (total rows, heads, head_dim), got "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}; "
            "batches of one length go to flash_attention"
        )
    if k.shape[:2] != v.shape[:2] or q.shape[2] != k.shape[2]:
        raise ArgumentError(
            "k and v must have one number of rows and of heads, q and k one head_dim; got "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    check_heads(q.shape[1], k.shape[1])
    check_dims(q.shape[2], v.shape[2])
