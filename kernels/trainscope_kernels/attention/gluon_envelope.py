"""What ``impl="gluon"`` of attention takes, as one table, and the check that follows it.

| what | forward | backward, where an input requires grad |
|---|---|---|
| GPU, software | compute capability 9.0 (Hopper), Triton 3.6 | the same |
| dtype | bfloat16, float16 | the same |
| head_dim, value dim | 64, 96, 128, 192 or 256, equal | the same |
| heads | query heads a multiple of key heads | the same |
| queries, keys | 1 to 2**24 - 1 of each | the same |
| rows in all | batch * heads * queries under 2**31 | the same |
| causal | None, "top-left", "bottom-right", True | the same |
| window | any | the same |
| softcap | 2**-64 to 2**10, or none | the same |
| mask | none | none |
| packed sequences | any lengths, rows of all together as above | the same |
| scale | 2**-64 and up | the same |
| memory | inner stride 1, the others multiples of 16 bytes and not 0 | the same |
| deterministic=True | yes, always | yes, dQ then has a kernel of its own |

What is outside is refused where "gluon" was asked for by name, and "auto" then takes "triton"; it
does so too for fewer than ``op.GLUON_FROM`` queries, where a launch costs more than it saves, for
packed sequences but those that ``varlen.GLUON_FROM`` says were seen to be faster, and for a causal
call of a new shape while a CUDA graph is captured, whose schedule cannot be copied.
Copied first, since torch.compile cannot know of them here: a tensor whose address is not a multiple
of 16 bytes (a view from inside a row), and an incoming gradient of another layout than the table's.
"""

from __future__ import annotations

import importlib.util

import torch

from trainscope_kernels.impls import interpreting

__all__ = ["call_refusal", "gpu_refusal", "tma_takes"]

TRITON = (3, 6)
"""Gluon is experimental and its names move with each release."""
DTYPES = (torch.bfloat16, torch.float16)
HEAD_DIMS = (64, 96, 128, 192, 256)
LONGEST = 2**24
"""Offsets inside a head are 32-bit: 2**24 rows of 128."""
MOST_ROWS = 2**31
SMALLEST_SCALE = 2.0**-64
"""The backward divides by it; a scale of 0 or below would need the row minimum, not maximum."""
LARGEST_SOFTCAP = 2.0**10
"""Its tanh is 1e-7 off, which that makes of a score 2e-4: a rounding of float16."""
WIDEST_STRIDE = 2**40
"""Bytes; the limit of a tensor map."""


_answers: dict[int, str | None] = {}


def gpu_refusal(device: torch.device) -> str | None:
    """Why the Gluon kernels do not run on this device; None where they do."""
    if device.type != "cuda":
        return f"it needs CUDA tensors, these are on {device.type}"
    return _answer(device.index)


def _answer(index: int) -> str | None:
    if index not in _answers:
        _answers[index] = _ask_gpu(index)
    return _answers[index]


# What torch.compiler.assume_constant_result does, which would import Triton with us: torch.compile
# asks, and does not trace the question.
_answer._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _ask_gpu(index: int) -> str | None:
    capability = torch.cuda.get_device_capability(index)
    if capability != (9, 0):
        return f"it needs compute capability 9.0 (Hopper), this GPU has {capability}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton"
    if interpreting():
        return "Gluon has no interpreter: unset TRITON_INTERPRET"
    import triton

    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version != TRITON:
        return f"it is written for Triton 3.6, {triton.__version__} is installed"
    return None


def call_refusal(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    softcap: float,
    masked: bool,
) -> str | None:
    """Why the Gluon kernels do not take this call; None where they do.

    The arguments are those of the op, checked already; a softcap of 0 is none. Packed sequences are
    a batch of one.
    """
    batch, heads, length, dim = q.shape
    if q.dtype not in DTYPES:
        return f"it takes bfloat16 and float16, got {q.dtype}"
    if dim not in HEAD_DIMS or v.shape[3] != dim:
        return (
            f"it takes head_dim and value dim {_one_of(HEAD_DIMS)}, equal; got {dim} and "
            f"{v.shape[3]}"
        )
    if not 1 <= length < LONGEST or not 1 <= batch * heads * length < MOST_ROWS:
        return (
            "it takes 1 to 2**24 - 1 queries and under 2**31 rows in all, got "
            f"{tuple(q.shape)} (batch, heads, queries, head_dim)"
        )
    if not 1 <= k.shape[2] < LONGEST:
        return f"it takes 1 to 2**24 - 1 keys, got {k.shape[2]}"
    if masked:
        return "it has no mask"
    if not scale >= SMALLEST_SCALE:
        return f"it takes a scale of 2**-64 and up, got {scale}"
    if softcap != 0 and not SMALLEST_SCALE <= softcap <= LARGEST_SOFTCAP:
        return f"it takes a softcap of 2**-64 to 2**10, got {softcap}"
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not tma_takes(x):
            return (
                f"{name} is not laid out for TMA: it takes an inner stride of 1 and others "
                f"that are multiples of 16 bytes, got {x.stride()}; pass {name}.contiguous()"
            )
    return None


def _one_of(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"


def tma_takes(x: torch.Tensor) -> bool:
    """Whether a tensor map can describe these (batch, heads, rows, head_dim), from a fit address.

    The strides of dims of size 1 are never used, so they may be anything.
    """
    if x.is_contiguous():
        return True
    sizes, strides = x.shape, x.stride()
    if strides[3] != 1:
        return False
    for dim in range(3):
        in_bytes = strides[dim] * x.element_size()
        if sizes[dim] > 1 and (in_bytes % 16 != 0 or not 0 < in_bytes < WIDEST_STRIDE):
            return False
    return True
