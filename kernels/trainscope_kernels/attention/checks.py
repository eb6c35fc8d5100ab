"""What flash_attention and flash_attention_varlen say to arguments that they do not take."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from trainscope_kernels.dense import check_dense
from trainscope_kernels.errors import ArgumentError

__all__ = [
    "check_cu_seqlens",
    "check_impl",
    "check_same_kind",
    "check_shapes",
    "full_mask",
    "number_of",
    "refuse",
]

IMPLS = ("auto", "reference", "triton", "gluon")
DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
LARGEST_HEAD_DIM = 256

INSTEAD = {
    "dropout_p": "attention dropout is not offered; use scaled_dot_product_attention for it, or "
    "dropout on the output",
    "attn_mask": "say mask=, boolean (True may be seen) or additive",
    "is_causal": "say causal='top-left', which is what is_causal means",
    "enable_gqa": "fewer key heads than query heads are taken as they are: leave it out",
}


def refuse(names: Mapping[str, object]) -> None:
    """Raise for keyword arguments that other attention functions have and these do not."""
    name = next(iter(names))
    advice = INSTEAD.get(name, "see help(trainscope_kernels.flash_attention) for its arguments")
    raise ArgumentError(f"flash_attention has no argument {name}: {advice}")


def check_impl(impl: str) -> None:
    """Raise unless ``impl`` is a name that attention has."""
    if impl not in IMPLS:
        raise ArgumentError(f"impl must be one of {', '.join(IMPLS)}, got {impl!r}")


def check_same_kind(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise unless all three are dense, floating point of one dtype on one device."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_dense(name, x)
    dtype = q.dtype
    if dtype not in DTYPES or k.dtype != dtype or v.dtype != dtype:
        raise ArgumentError(
            "q, k and v must have one dtype of float16, bfloat16, float32 and float64, got "
            f"{dtype}, {k.dtype} and {v.dtype}; convert them first, or run under torch.autocast"
        )
    device = q.device
    if k.device != device or v.device != device:
        raise ArgumentError(
            f"q, k and v must be on one device, got {device}, {k.device} and {v.device}"
        )


def check_shapes(
    q: torch.Size | tuple[int, ...],
    k: torch.Size | tuple[int, ...],
    v: torch.Size | tuple[int, ...],
) -> None:
    """Raise unless the (batch, heads, sequence, head_dim) shapes go together."""
    if len(q) != 4 or len(k) != 4 or len(v) != 4:
        raise ArgumentError(
            "q, k and v must have the shape (batch, heads, sequence, head_dim), got "
            f"{tuple(q)}, {tuple(k)} and {tuple(v)}; packed sequences go to flash_attention_varlen"
        )
    if k[0] != q[0] or v[0] != q[0] or v[1] != k[1] or v[2] != k[2] or k[3] != q[3]:
        raise ArgumentError(
            "q, k and v must have one batch size, k and v one number of heads and one length, "
            f"q and k one head_dim; got {tuple(q)}, {tuple(k)} and {tuple(v)}"
        )
    check_heads(q[1], k[1])
    check_dims(q[3], v[3])


def check_heads(of_q: int, of_k: int) -> None:
    """Raise unless each key head serves the same number of query heads."""
    if of_q != of_k and (of_k == 0 or of_q % of_k != 0):
        raise ArgumentError(
            f"the query heads must be a multiple of the key heads, got {of_q} and {of_k}"
        )


def check_dims(of_q: int, of_v: int) -> None:
    """Raise unless both head dimensions are within 1..256."""
    if not (1 <= of_q <= LARGEST_HEAD_DIM and 1 <= of_v <= LARGEST_HEAD_DIM):
        raise ArgumentError(
            f"head_dim must be 1 to {LARGEST_HEAD_DIM}, of q and k as of v; got {of_q} and {of_v}; "
            "larger heads: torch.nn.functional.scaled_dot_product_attention"
        )


def number_of(name: str, value: float | None, default: float) -> float:
    """A scale or softcap as a float; None is ``default``."""
    if value is None:
        return default
    if not isinstance(value, (int, float)):
        raise ArgumentError(
            f"{name} must be a Python number or None, got {type(value).__name__}: reading a "
            "tensor's value would wait for the GPU"
        )
    if not -math.inf < value < math.inf:
        raise ArgumentError(f"{name} must be finite, or None; got {value}")
    if name == "softcap" and not value > 0:
        raise ArgumentError(f"softcap must be greater than 0, or None for none; got {value}")
    return float(value)


def full_mask(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The mask as a (batch, heads, queries, keys) view; what broadcasts has stride 0."""
    if not isinstance(mask, torch.Tensor) or not (mask.dtype == torch.bool or mask.dtype in DTYPES):
        raise ArgumentError(
            "mask must be a tensor, boolean (True may be seen) or floating point (added to the "
            f"scores), got {getattr(mask, 'dtype', type(mask).__name__)}"
        )
    check_dense("mask", mask)
    if mask.requires_grad:
        raise ArgumentError(
            "mask requires grad, and no gradient is made for a mask: pass mask.detach(), or use "
            "scaled_dot_product_attention or FlexAttention for a learned bias"
        )
    if mask.device != q.device:
        raise ArgumentError(f"mask must be on the device of q, {q.device}, got {mask.device}")
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    fits = mask.dim() <= 4
    # neither any() of a generator nor a zip() of unequal lengths: torch 2.9 does not compile them
    for dim in range(1, min(mask.dim(), 4) + 1):
        fits = fits and (mask.shape[-dim] == 1 or mask.shape[-dim] == shape[-dim])
    if not fits:
        raise ArgumentError(
            "mask must broadcast to (batch, heads, queries, keys) = "
            f"{shape}, got {tuple(mask.shape)}"
        )
    return mask.expand(shape)


def check_cu_seqlens(name: str, cu_seqlens: torch.Tensor, device: torch.device) -> None:
    """Raise unless these are the offsets of packed sequences; their values are not read."""
    if (
        not isinstance(cu_seqlens, torch.Tensor)
        or cu_seqlens.dtype not in (torch.int32, torch.int64)
        or cu_seqlens.dim() != 1
        or cu_seqlens.shape[0] < 1
        or cu_seqlens.device != device
    ):
        raise ArgumentError(
            f"{name} must be a one-dimensional int32 or int64 tensor on {device} with the first "
            "row of each sequence and the end of the last: torch.tensor([0, 5, 12]) is two "
            f"sequences of 5 and 7 rows; got {cu_seqlens!r}"
        )
